-- Token bucket, the half that runs in Redis: four sections of store/decide.lua. Twin of token-bucket.ts.
-- Stored: a string of 20 bytes, level in 2^-20ths of a hit (double), when that was true in µs (double),
-- until when the key lives at least in s (uint32).
-- Expiry: between the time to full and one window later; a hit writes in place while that holds.

-- [load]
state = {
  algorithm = algorithm, key = key, used = 0, pending = 0, level = 0, at = nowUs, deadline = false,
}
if value and #value == 20 then
  local level, at, deadline = unpackValues('<ddI4', value)
  if level > 0 and level <= MAX_HITS and level == floor(level)
    and at >= 0 and at <= MAX_HITS and at == floor(at) then
    -- A time further ahead than a clock steps back is not believed; what was used still is.
    if at > nowUs + windowUs then
      at = nowUs
    end
    local elapsed = nowUs - at
    if elapsed > 0 then
      local rate = requests * PARTS
      local refill = floor(elapsed * rate / windowUs)
      -- A limit of 0 never refills; what an earlier number left behind goes after one window.
      if refill >= level or (rate == 0 and elapsed >= windowUs) then
        level = 0
        at = nowUs
      elseif refill > 0 then
        level = level - refill
        at = min(at + ceil(refill * windowUs / rate), nowUs)
      end
    end
    state.level, state.at, state.used = level, at, ceil(level / PARTS)
    -- As untouched: its expiry is set anew, whatever became of the old one.
    if level > 0 then
      state.deadline = deadline
    end
  end
end

-- [judge]
local rate = requests * PARTS
local excess = state.level
resetUs = 0
if excess > 0 then
  -- The fewest µs after which the load refills so many parts; its rounding is repeated, not guessed.
  local elapsed = windowUs
  if rate > 0 then
    elapsed = ceil(excess * windowUs / rate)
    if floor(elapsed * rate / windowUs) < excess then
      elapsed = elapsed + 1
    end
    elapsed = min(elapsed, MOST_US)
  end
  resetUs = state.at + elapsed - nowUs
end
if retry then
  excess = state.level - (capacity - wanted) * PARTS
  if excess > 0 then
    local elapsed = windowUs
    if rate > 0 then
      elapsed = ceil(excess * windowUs / rate)
      if floor(elapsed * rate / windowUs) < excess then
        elapsed = elapsed + 1
      end
      elapsed = min(elapsed, MOST_US)
    end
    retryAfterUs = state.at + elapsed - nowUs
  end
end

-- [take]
if mode == GIVE_BACK or mode == UNDO then
  state.level = max(state.level - hits * PARTS, 0)
  -- It is full sooner: its life is shortened.
  state.deadline = false
else
  if state.level <= 0 then
    state.at = max(state.at, nowUs)
  end
  local most = (capacity + requests) * PARTS
  state.level = max(state.level, min(state.level + hits * PARTS, most))
  mark = 0
end
state.used = ceil(state.level / PARTS)

-- [save]
if state.level <= 0 then
  call('UNLINK', key)
else
  local fullUs = min(state.at, nowUs) + windowUs
  if requests > 0 then
    fullUs = min(state.at, nowUs) + min(ceil(state.level * windowUs / (requests * PARTS)), MOST_US)
  end
  local deadline = state.deadline
  if deadline and deadline * 1000000 >= fullUs and deadline * 1000000 <= fullUs + windowUs then
    call('SETRANGE', key, '0', pack('<dd', state.level, state.at))
  else
    local untilUs = fullUs + windowUs * 0.8 + jitter
    deadline = min(floor(untilUs / 1000000), 4294967295)
    local life = format('%d', ceil((untilUs - nowUs) / 1000))
    call('SET', key, pack('<ddI4', state.level, state.at, deadline), 'PX', life)
  end
end
