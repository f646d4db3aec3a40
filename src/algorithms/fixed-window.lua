-- Fixed window, the half that runs in Redis: four sections of store/decide.lua. Twin of fixed-window.ts.
-- Stored: a string of 12 bytes, window number (uint32), hits (double). It is for that window only.
-- Expiry: set when the window changes, shortly after its end; a later hit writes the hits in place.

-- [load]
local window = floor(nowUs / windowUs)
state = { algorithm = algorithm, key = key, used = 0, pending = 0, window = window, stored = false }
if value and #value == 12 then
  local storedWindow, used = unpackValues('<I4d', value)
  -- One window ahead is a clock that stepped back: that window goes on. More is implausible.
  if (storedWindow == window or storedWindow == window + 1)
    and used > 0 and used <= MAX_HITS and used == floor(used) then
    state.window, state.used, state.stored = storedWindow, used, true
  end
end

-- [judge]
resetUs = (state.window + 1) * windowUs - nowUs
if retry then
  retryAfterUs = resetUs
end

-- [take]
if mode == GIVE_BACK then
  state.used = max(state.used - hits, 0)
elseif mode == UNDO then
  if state.window == mark then
    state.used = max(state.used - hits, 0)
  end
else
  state.used = min(state.used + hits, MAX_HITS)
  mark = state.window
end

-- [save]
if state.stored then
  call('SETRANGE', key, '4', pack('<d', state.used))
elseif state.used > 0 then
  local startUs = state.window * windowUs
  local ttlUs = startUs + windowUs - max(nowUs, startUs) + min(1000000, windowUs / 2) + jitter
  call('SET', key, pack('<I4d', state.window, state.used), 'PX', format('%d', ceil(ttlUs / 1000)))
else
  call('UNLINK', key)
end
