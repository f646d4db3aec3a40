-- Sliding window counter, the half that runs in Redis: four sections of store/decide.lua.
-- Twin of sliding-window-counter.ts.
-- Stored: a string of 18 + 12 × runs bytes: hits of all runs (uint56), when the newest run began in µs
-- (uint56), until when the key lives at least in s (uint32); then each run, the oldest first: its last
-- hit in µs (uint56), its hits (uint40).
-- Expiry: between the time when the newest run leaves and one window later.

-- [load]
-- `older` from byte `from` on: the runs before the newest, which is `last` and `lastHits`.
state = {
  algorithm = algorithm, key = key, used = 0, pending = 0, first = 0, last = false, lastHits = 0,
  older = '', from = 1, stored = false, deadline = false,
}
if value then
  local length = #value
  state.stored = true
  if length >= 30 and (length - 18) % 12 == 0 then
    local used, first, deadline = unpackValues('<I7I7I4', value)
    local last, lastHits = unpackValues('<I7I5', value, length - 11)
    -- Else everything has left, or the newest is further ahead than a clock steps back.
    if used < 1099511627776 and last > nowUs - windowUs and last <= nowUs + windowUs then
      local edge = max(nowUs, last) - windowUs
      local from = 19
      while from < length - 11 do
        local runLast, runHits = unpackValues('<I7I5', value, from)
        if runLast > edge then
          break
        end
        used = used - runHits
        from = from + 12
      end
      if lastHits > 0 and used >= lastHits then
        state.used, state.first, state.last, state.lastHits = used, first, last, lastHits
        state.older, state.from, state.deadline = sub(value, 1, length - 12), from, deadline
      end
    end
  end
end

-- [judge]
resetUs = state.last and state.last + windowUs - nowUs or 0
if retry then
  local need = state.used + wanted - requests
  if need > 0 then
    local leaves = state.last
    local older, from = state.older, state.from
    while from < #older do
      local runLast, runHits = unpackValues('<I7I5', older, from)
      need = need - runHits
      if need <= 0 then
        leaves = runLast
        break
      end
      from = from + 12
    end
    retryAfterUs = (leaves or nowUs) + windowUs - nowUs
  end
end

-- [take]
if mode == GIVE_BACK then
  local left = min(hits, state.used)
  state.used = state.used - left
  local older, from = state.older, state.from
  while left > 0 and from < #older do
    local runLast, runHits = unpackValues('<I7I5', older, from)
    if runHits > left then
      state.older = pack('<I7I5', runLast, runHits - left) .. sub(older, from + 12)
      older, from, left = state.older, 1, 0
    else
      left = left - runHits
      from = from + 12
    end
  end
  state.from = from
  state.lastHits = max(state.lastHits - left, 0)
  if state.used == 0 then
    state.last, state.lastHits, state.first = false, 0, 0
  end
elseif mode == UNDO then
  -- The newest run may go: its life is shortened.
  state.deadline = false
  local older, from = state.older, state.from
  local runLast, runHits
  while from < #older do
    runLast, runHits = unpackValues('<I7I5', older, from)
    if runLast >= mark then
      break
    end
    from = from + 12
  end
  local newest = from >= #older
  if newest then
    runLast, runHits = state.last, state.lastHits
  end
  -- A run is at most one precision long: one that began after the mark does not hold the hits.
  if runLast and runLast >= mark and runLast - precisionUs <= mark
    and not (newest and state.first > mark) then
    local undone = min(hits, runHits)
    state.used = state.used - undone
    if state.used == 0 then
      state.last, state.lastHits, state.first = false, 0, 0
      state.older, state.from = '', 1
    elseif newest and (runHits > undone or state.from >= #older) then
      state.lastHits = runHits - undone
    elseif newest then
      -- When the run before this one began is not known: as early as it can have, so none joins.
      state.last, state.lastHits = unpackValues('<I7I5', older, #older - 11)
      state.first = state.last - precisionUs
      state.older = sub(older, 1, #older - 12)
    else
      local kept = runHits > undone and pack('<I7I5', runLast, runHits - undone) or ''
      state.older = sub(older, 1, from - 1) .. kept .. sub(older, from + 12)
    end
  end
else
  local time = max(nowUs, state.last or nowUs)
  local added = min(hits, 2 * requests - state.used)
  if added > 0 then
    state.used = state.used + added
    if state.last and time - state.first <= precisionUs then
      state.last = time
      state.lastHits = state.lastHits + added
    else
      if state.last then
        state.older = state.older .. pack('<I7I5', state.last, state.lastHits)
      end
      state.first, state.last, state.lastHits = time, time, added
    end
  end
  mark = time
end

-- [save]
if not state.last then
  if state.stored then
    call('UNLINK', key)
  end
else
  -- After the clock has stepped back, a window from now: elapsed time goes on all the same.
  local leavesUs = min(state.last, nowUs) + windowUs
  local deadline = state.deadline
  local holds = deadline and deadline * 1000000 >= leavesUs and deadline * 1000000 <= leavesUs + windowUs
  local untilUs = leavesUs + windowUs * 0.8 + jitter
  if not holds then
    deadline = min(floor(untilUs / 1000000), 4294967295)
  end
  local head = pack('<I7I7I4', state.used, max(state.first, 0), deadline)
  local runs = sub(state.older, state.from) .. pack('<I7I5', state.last, state.lastHits)
  if holds then
    call('SET', key, head .. runs, 'KEEPTTL')
  else
    call('SET', key, head .. runs, 'PX', format('%d', ceil((untilUs - nowUs) / 1000)))
  end
end
