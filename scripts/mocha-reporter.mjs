// Mocha's spec report, closed by one line that a machine can read: `N passed, N failed, N skipped`.
import Mocha from 'mocha';

export default class CountingReporter extends Mocha.reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once('end', () => {
      const { passes, failures, pending } = runner.stats;
      const skipped = pending > 0 ? `, ${pending} skipped` : '';
      console.log(`${passes} passed, ${failures} failed${skipped}`);
    });
  }
}
