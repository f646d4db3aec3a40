-- The scripts run inside Redis: Lua 5.1 and what Redis adds to it. The algorithms' files are sections of
-- one chunk (see src/store/decide.lua), so they read and set locals that another file declares.
std = "lua51"
read_globals = { "redis", "cjson", "cmsgpack", "struct", "bit" }
globals = { "KEYS", "ARGV" }
max_line_length = 100
