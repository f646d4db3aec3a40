-- The script runs inside Redis: Lua 5.1 and what Redis adds to it. What is checked is the whole script, as
-- `weir script` prints it: its parts in src/ read and set what other parts declare.
std = "lua51"
read_globals = { "redis", "struct", "KEYS", "ARGV" }
max_line_length = 120
