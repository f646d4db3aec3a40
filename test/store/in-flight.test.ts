import { expect } from 'chai';
import { InFlight } from '../../src/store/in-flight.js';

describe('what is in flight', () => {
  const item = (name: string) => ({ name, place: -1 });

  it('is what was added and not taken out, whatever the order', () => {
    const flight = new InFlight<ReturnType<typeof item>>();
    const [a, b, c] = [item('a'), item('b'), item('c')] as const;
    for (const each of [a, b, c]) flight.add(each);
    flight.delete(a);
    expect(flight.all()).to.have.members([b, c]);
    flight.add(a);
    flight.delete(c);
    flight.delete(b);
    expect(flight.all()).to.deep.equal([a]);
    flight.delete(a);
    expect(flight.all()).to.deep.equal([]);
  });

  it('does not mind what is taken out twice, or was never in', () => {
    const flight = new InFlight<ReturnType<typeof item>>();
    const [a, b] = [item('a'), item('b')] as const;
    flight.add(a);
    flight.delete(b);
    flight.add(b);
    flight.delete(a);
    flight.delete(a);
    expect(flight.all()).to.deep.equal([b]);
  });
});
