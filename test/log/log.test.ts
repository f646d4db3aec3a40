import { expect } from 'chai';
import { createLog, type Log } from '../../src/log/log.js';
import type { Settings } from '../../src/settings/settings.js';

function written(settings: Settings['log'], act: (log: Log) => void): string {
  let text = '';
  act(createLog(settings, { write: (line: string) => (text += line) }));
  return text;
}

describe('the log', () => {
  it('is a JSON object a line, with level names and the time', () => {
    const text = written({ level: 'info', format: 'json' }, (log) => {
      log.debug({}, 'hidden');
      log.info({ port: 8081 }, 'shown');
      log.fatal({}, 'end');
    });
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map(({ level, msg, port }) => [level, msg, port])).to.deep.equal([
      ['info', 'shown', 8081],
      ['fatal', 'end', undefined],
    ]);
    expect(String(lines[0]?.time)).to.match(/^\d{4}-\d\d-\d\dT/);
  });

  it('is written at every level where it must be', () => {
    const text = written({ level: 'fatal', format: 'json' }, (log) => {
      log.error({}, 'hidden');
      log.always({ store: 'memory' }, 'listens');
    });
    expect(text).to.include('"msg":"listens"').and.not.include('hidden');
  });

  it('carries errors with their cause', () => {
    const text = written({ level: 'warn', format: 'json' }, (log) => {
      log.warn({ err: new Error('outer', { cause: new Error('inner') }) }, 'failed');
    });
    expect(text).to.include('outer').and.include('inner');
  });

  it('leaves out what else an error carries, such as the command of an AUTH that failed', () => {
    const failed = Object.assign(new Error('WRONGPASS'), {
      code: 'E1',
      command: { name: 'auth', args: ['user', 'hush'] },
    });
    for (const field of ['err', 'error']) {
      const text = written({ level: 'warn', format: 'json' }, (log) => {
        log.warn({ [field]: failed }, 'failed');
      });
      expect(text).to.include('WRONGPASS').and.include('E1').and.not.include('hush');
    }
  });

  for (const format of ['json', 'text'] as const) {
    it(`hides secrets in ${format}`, () => {
      const text = written({ level: 'info', format }, (log) => {
        log.info(
          {
            password: 'hush',
            redis: { password: 'hush', sentinelPassword: 'hush', host: 'seen' },
            deep: { admin: { token: 'hush' } },
          },
          'shown',
        );
      });
      expect(text).to.include('seen').and.include('shown').and.not.include('hush');
    });
  }

  it('is readable as text', () => {
    const text = written({ level: 'info', format: 'text' }, (log) => {
      log.info({ port: 8081 }, 'listens');
    });
    expect(text).to.match(/INFO: listens\n {4}port: 8081\n/);
    expect(text).to.not.include('{');
  });
});
