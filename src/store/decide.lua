-- Decides a batch of requests, each all or nothing, in one call; later requests see what earlier ones
-- took. Loads each distinct counter once and writes each changed counter once. The lines `<load>` and so
-- on are replaced by the sections of the algorithms (store/script.ts), so that it is one flat chunk.
--
-- KEYS: every distinct counter of the batch.
-- ARGV[1], packed, little-endian:
--   uint8   1 if some key holds a string, else 0
--   double  jitter in µs, added to what a key lives, at most a tenth of a window
--   then each request: uint16 number of charges, and each charge:
--     uint16 index of its key from 1, uint8 algorithm, uint8 role, uint8 mode, double hits,
--     double limit in hits, double window in µs,
--     double capacity in hits (token bucket) or precision in µs (sliding window counter),
--     and for an undo: double the mark that the take returned
-- ARGV[2], in tests only: the time in µs since the epoch, in place of Redis's own.
-- Returns, packed: double now in µs since the epoch; then each charge:
--   uint8 1 fits + 2 taken, double remaining in hits, double reset in µs, double retry-after in µs
--   (-1 never), double mark (what was taken, for an undo; else 0)
-- Stored and expiry: see each algorithm. Atomic: the whole batch. A value of a wrong type or an
-- implausible one counts as empty and is replaced.

local call, pcall, type, select = redis.call, redis.pcall, type, select
local unpackValues, pack, sub, format = struct.unpack, struct.pack, string.sub, string.format
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

-- Arguments of commands are texts: Redis would write a number with 17 digits' care, which takes longer than
-- some commands.

-- Modes; 1 is a peek, for which there is nothing to do.
local TAKE, RECORD, GIVE_BACK, UNDO = 0, 2, 3, 4
local ENFORCED, QUOTA = 0, 2
local MAX_HITS = 9007199254740991
local MOST_US = 4503599627370496
local PARTS = 1048576
local TOTALS = 4503599627370496

local nowUs = ARGV[2] and tonumber(ARGV[2])
if not nowUs then
  local time = call('TIME')
  nowUs = time[1] * 1000000 + time[2]
end

local batch = ARGV[1]
local strings, jitterUs, position = unpackValues('<Bd', batch)
local values = strings == 1 and call('MGET', unpack(KEYS)) or {}
local states, changed, changes = {}, {}, 0
local charges = {}
local reply, replies = { pack('<d', nowUs) }, 1

while position <= #batch do
  local count
  count, position = unpackValues('<I2', batch, position)

  -- Judge the charges in order. A charge that may be taken leaves less for those after it.
  local refused, quotas, quotaFits = false, 0, false
  for i = 1, count do
    local index, algorithm, role, mode, hits, requests, windowUs, extra, mark
    index, algorithm, role, mode, hits, requests, windowUs, extra, position =
      unpackValues('<I2BBBdddd', batch, position)
    if mode == UNDO then
      mark, position = unpackValues('<d', batch, position)
    end
    local capacity = algorithm == 4 and extra or requests
    local state = states[index]
    if not state then
      local key, value = KEYS[index], values[index]
      -- <load>
      states[index] = state
    end
    local wanted = hits + state.pending
    local fits = mode >= GIVE_BACK or wanted <= capacity - state.used
    if mode == RECORD or (mode == TAKE and fits) then
      state.pending = wanted
    end
    if role == QUOTA then
      quotas = quotas + 1
      quotaFits = quotaFits or fits
    elseif role == ENFORCED and not fits then
      refused = true
    end
    local charge = charges[i]
    if not charge then
      charge = {}
      charges[i] = charge
    end
    charge.state, charge.mode, charge.hits, charge.fits, charge.wanted = state, mode, hits, fits, wanted
    charge.requests, charge.windowUs, charge.extra, charge.mark = requests, windowUs, extra, mark
  end
  refused = refused or (quotas > 0 and not quotaFits)

  -- Take.
  for i = 1, count do
    local charge = charges[i]
    local state, mode, hits, mark = charge.state, charge.mode, charge.hits, charge.mark
    local taken = mode >= RECORD or (mode == TAKE and charge.fits and not refused)
    state.pending = 0
    charge.taken = taken
    if taken and hits > 0 then
      local requests, windowUs, extra = charge.requests, charge.windowUs, charge.extra
      local algorithm, key, capacity, precisionUs = state.algorithm, state.key, extra, extra
      -- <take>
      if not state.windowUs then
        changes = changes + 1
        changed[changes] = state
      end
      state.requests, state.windowUs = requests, windowUs
    end
    charge.mark = mode < GIVE_BACK and mark or 0
  end

  -- Report what is so after the whole request.
  for i = 1, count do
    local charge = charges[i]
    local state, wanted, requests, windowUs = charge.state, charge.wanted, charge.requests, charge.windowUs
    local algorithm, key = state.algorithm, state.key
    local capacity = algorithm == 4 and charge.extra or requests
    local resetUs, retryAfterUs, retry = 0, 0, false
    if not charge.fits then
      if wanted > capacity then
        retryAfterUs = -1
      else
        retry = true
      end
    end
    -- <judge>
    replies = replies + 1
    reply[replies] = pack('<Bdddd', (charge.fits and 1 or 0) + (charge.taken and 2 or 0),
      max(capacity - state.used, 0), resetUs, retryAfterUs, charge.mark)
  end
end

for i = 1, changes do
  local state = changed[i]
  local algorithm, key, requests, windowUs = state.algorithm, state.key, state.requests, state.windowUs
  local jitter = min(jitterUs, windowUs / 10)
  -- <save>
end

return table.concat(reply)
