-- Sliding window, the half that runs in Redis: four sections of store/decide.lua. Twin of sliding-window.ts.
-- Stored: a list of entries of 21 bytes, the oldest first: time in µs, running total of hits modulo
-- 2^52, hits (each uint56). The running total finds by bisection which entry to wait for.
-- Expiry: set at each write, shortly after the newest entry leaves. Give-back and undo write at once,
-- all else in the last section.

-- [load]
-- Stored entries: `last` is the newest one's time and `total` its running total, `oldest` the first
-- live one's time, `base` the total before that, `drop` how many before it have left. `added` hits come
-- on top at `time`. `spoilt`: what is stored counts for nothing and goes.
state = {
  algorithm = algorithm, key = key, used = 0, pending = 0, last = false, total = 0, oldest = 0,
  base = 0, drop = 0, added = 0, time = nowUs, spoilt = false,
}
local newest = pcall('LINDEX', key, '-1')
if type(newest) == 'table' and not string.find(newest.err, 'WRONGTYPE', 1, true) then
  -- What may not be read is no reason to throw away what was counted.
  return newest
end
if newest then
  state.spoilt = true
  local front = type(newest) == 'string' and #newest == 21 and call('LINDEX', key, '0')
  if front and #front == 21 then
    local last, total = unpackValues('<I7I7', newest)
    -- Else everything has left, or the newest is further ahead than a clock steps back.
    if last > nowUs - windowUs and last <= nowUs + windowUs then
      local time = max(nowUs, last)
      local edge = time - windowUs
      local oldest, frontTotal, frontHits = unpackValues('<I7I7I7', front)
      local drop = 0
      if oldest <= edge then
        -- The first live entry stands after `left`, which has left, up to `live`.
        local left, live = 0, call('LLEN', key) - 1
        while live - left > 1 do
          local middle = floor((left + live) / 2)
          local entry = call('LINDEX', key, middle)
          if #entry == 21 and unpackValues('<I7', entry) > edge then
            live = middle
          else
            left = middle
          end
        end
        drop = live
        front = call('LINDEX', key, live)
        oldest, frontTotal, frontHits = unpackValues('<I7I7I7', front)
      end
      local base = (frontTotal - frontHits) % TOTALS
      local used = (total - base) % TOTALS
      if used > 0 and used <= 1099511627776 then
        state.used, state.last, state.total, state.oldest = used, last, total, oldest
        state.base, state.drop, state.time, state.spoilt = base, drop, time, false
      end
    end
  end
end

-- [judge]
local last = state.added > 0 and state.time or state.last
resetUs = last and last + windowUs - nowUs or 0
if retry then
  local need = state.used + wanted - requests
  local stored = state.used - state.added
  if need > stored then
    retryAfterUs = state.time + windowUs - nowUs
  elseif need == 1 then
    retryAfterUs = state.oldest + windowUs - nowUs
  elseif need > 0 then
    -- The first entry whose running total reaches `need` stands after `short`, up to `enough`.
    local short, enough = state.drop - 1, call('LLEN', key) - 1
    local leaves = state.last
    while enough - short > 1 do
      local middle = floor((short + enough) / 2)
      local entry = call('LINDEX', key, middle)
      local entryTime, entryTotal = 0, state.base
      if #entry == 21 then
        entryTime, entryTotal = unpackValues('<I7I7', entry)
      end
      if (entryTotal - state.base) % TOTALS >= need then
        enough, leaves = middle, entryTime
      else
        short = middle
      end
    end
    retryAfterUs = leaves + windowUs - nowUs
  end
end

-- [take]
if mode == GIVE_BACK then
  local left = min(hits, state.used)
  local stored = state.used - state.added
  state.used = state.used - left
  if left >= stored then
    if stored > 0 then
      call('UNLINK', key)
    end
    state.added = state.added - (left - stored)
    state.last, state.total, state.base, state.drop = false, 0, 0, 0
  elseif left > 0 then
    -- The first entry that is not wholly given back stands after `gone`, up to `kept`.
    local gone, kept = state.drop - 1, call('LLEN', key) - 1
    while kept - gone > 1 do
      local middle = floor((gone + kept) / 2)
      local entry = call('LINDEX', key, middle)
      if #entry == 21 and (select(2, unpackValues('<I7I7', entry)) - state.base) % TOTALS > left then
        kept = middle
      else
        gone = middle
      end
    end
    local keptTime, keptTotal = unpackValues('<I7I7', call('LINDEX', key, kept))
    state.base = (state.base + left) % TOTALS
    state.oldest = keptTime
    call('LSET', key, kept, pack('<I7I7I7', keptTime, keptTotal, (keptTotal - state.base) % TOTALS))
    call('LTRIM', key, kept, '-1')
    state.drop = 0
  end
elseif mode == UNDO then
  local left = hits
  if state.added > 0 and state.time == mark then
    local undone = min(left, state.added)
    state.added = state.added - undone
    state.used = state.used - undone
    left = left - undone
  end
  local stored = state.used - state.added
  if stored > 0 and left > 0 then
    if state.drop > 0 then
      call('LTRIM', key, state.drop, '-1')
      state.drop = 0
    end
    -- From the newest on: what a hit leaves behind is taken off the running totals of later entries.
    local place = call('LLEN', key) - 1
    while place >= 0 and left > 0 do
      local entry = call('LINDEX', key, place)
      if #entry ~= 21 then
        break
      end
      local entryTime, entryTotal, entryHits = unpackValues('<I7I7I7', entry)
      if entryTime < mark then
        break
      end
      if entryTime == mark then
        local undone = min(left, entryHits)
        left = left - undone
        state.used = state.used - undone
        for later = place + 1, call('LLEN', key) - 1 do
          local laterTime, laterTotal, laterHits = unpackValues('<I7I7I7', call('LINDEX', key, later))
          call('LSET', key, later, pack('<I7I7I7', laterTime, (laterTotal - undone) % TOTALS, laterHits))
        end
        local rest = pack('<I7I7I7', entryTime, (entryTotal - undone) % TOTALS, entryHits - undone)
        call('LSET', key, place, rest)
        if entryHits == undone then
          call('LSET', key, place, '')
          call('LREM', key, 1, '')
        end
      end
      place = place - 1
    end
    local newest, oldest = call('LINDEX', key, '-1'), call('LINDEX', key, '0')
    if newest and #newest == 21 and #oldest == 21 then
      state.last, state.total = unpackValues('<I7I7', newest)
      local oldestTotal, oldestHits
      state.oldest, oldestTotal, oldestHits = unpackValues('<I7I7I7', oldest)
      state.base = (oldestTotal - oldestHits) % TOTALS
    else
      state.last, state.total, state.base = false, 0, 0
    end
  end
else
  local added = min(hits, 2 * requests - state.used)
  if added > 0 then
    state.used = state.used + added
    state.added = state.added + added
  end
  mark = state.time
end
if state.added == 0 then
  state.time = max(nowUs, state.last or nowUs)
end

-- [save]
if state.spoilt then
  call('UNLINK', key)
elseif state.drop > 0 then
  call('LTRIM', key, state.drop, '-1')
end
if state.added > 0 then
  call('RPUSH', key, pack('<I7I7I7', state.time, (state.total + state.added) % TOTALS, state.added))
end
local ttlUs = windowUs + min(1000000, windowUs / 2) + jitter
call('PEXPIRE', key, format('%d', ceil(ttlUs / 1000)))
