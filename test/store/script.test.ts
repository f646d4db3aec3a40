import { expect } from 'chai';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { buildScript, scriptSha } from '../../src/store/script.js';

describe('the script', () => {
  it('holds all four sections of all four algorithms, and no open place', () => {
    const script = buildScript();
    for (const name of [
      'fixed-window',
      'sliding-window',
      'sliding-window-counter',
      'token-bucket',
    ]) {
      expect(script.split(`then -- ${name}.lua\n`), name).to.have.length(5);
    }
    expect(script).to.not.match(/^ *-- <\w+>$/m);
  });

  it('is Lua that luacheck finds nothing wrong with', () => {
    execFileSync('luacheck', ['--quiet', '--filename', 'decide.lua', '-'], {
      input: buildScript(),
    });
  });

  it('is known to Redis by its SHA-1', () => {
    expect(scriptSha()).to.equal(createHash('sha1').update(buildScript()).digest('hex'));
  });
});
