/**
 * Whether the service may be asked: folded from what the stages say of themselves. The front doors show
 * it to health checks; nothing else reads it.
 */
import type { HealthSource } from './front-door.js';

export interface HealthConditions {
  /** A configuration is in force. */
  readonly loaded: () => boolean;
  /** FORCE_START_WITHOUT_INITIAL_CONFIG: being without one is no reason to refuse traffic. */
  readonly mayLackConfiguration: boolean;
  /** HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: so is a configuration without domains. */
  readonly needsDomain: boolean;
  readonly domains: () => number;
  /** REDIS_HEALTH_CHECK_ACTIVE_CONNECTION: so is a Redis that is away. */
  readonly needsConnection: boolean;
  readonly connected: () => boolean;
}

/** `changed` is called by whoever knows that a condition may have changed. */
export class ServiceHealth implements HealthSource {
  private readonly listeners: (() => void)[] = [];

  constructor(private readonly conditions: HealthConditions) {}

  serving(): boolean {
    return this.ready().ok;
  }

  ready(): { ok: boolean; reason: string } {
    const { conditions } = this;
    if (!conditions.loaded() && !conditions.mayLackConfiguration) {
      return { ok: false, reason: 'no configuration is loaded' };
    }
    if (conditions.needsDomain && conditions.domains() === 0) {
      return { ok: false, reason: 'the configuration has no domain' };
    }
    if (conditions.needsConnection && !conditions.connected()) {
      return { ok: false, reason: 'no connection to Redis' };
    }
    return { ok: true, reason: 'OK' };
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  changed(): void {
    for (const listener of this.listeners) listener();
  }
}
