"""The scripts, as text. A server runs one at a time, so each is a step of its own, of which others see all or nothing.

A script that fails in its middle keeps what it has written. So whatever can fail comes before the first write: the
cells and the stream are compared, and a cell is written as it is, which fails where its right is missing. Memory is
asked for by the server before a script's first write. What the server refuses of a row is found before (`entries`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

UNKNOWN_ID = "unknown"
"""Of a stream that nobody has given an id."""


@dataclass(frozen=True)
class Script:
    """Sent once by its text, then by its digest."""

    text: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A stream has no id. It is the one that was known as long as its counters have not gone back: both go on when entries
# are deleted or trimmed, and begin anew in a stream that was made again.
_STREAM = """
local function stream_of(key)
  local found = redis.pcall('XINFO', 'STREAM', key)
  if found.err then
    if string.find(found.err, 'no such key', 1, true) then return nil end
    return nil, found
  end
  local by = {}
  for i = 1, #found, 2 do by[found[i]] = found[i + 1] end
  return by
end
local function id_parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local function known_as(known, stream)
  if not known then return nil end
  local id, added, last = string.match(known, '^(%S+) (%d+) (%S+)$')
  local ms, seq = id_parts(stream['last-generated-id'])
  local known_ms, known_seq = id_parts(last)
  if stream['entries-added'] < tonumber(added) then return nil end
  if ms < known_ms or (ms == known_ms and seq < known_seq) then return nil end
  return id
end
local function know(known, key, id, stream)
  local added = string.format('%.0f', stream['entries-added'])
  redis.call('HSET', known, key, id .. ' ' .. added .. ' ' .. stream['last-generated-id'])
end
"""

COMMIT = Script(
    _STREAM
    + """
-- KEYS cells, stream, known streams. ARGV the stream's id, its length or '', the number of cells, of each its key, the
-- version that it must have or '', its new value or ''; then of each row the number of its words, and those.
local cells = tonumber(ARGV[3])
local there = {}
for i = 0, cells - 1 do
  local at = 4 + 3 * i
  there[i] = redis.call('HGET', KEYS[1], ARGV[at])
  if (there[i] and string.match(there[i], '^%d+') or '') ~= ARGV[at + 1] then return {'MOVED', ARGV[at]} end
end
-- A right that is missing is found out before anything is written: what was written stays. No cell has this key.
for i = 0, cells - 1 do
  if ARGV[4 + 3 * i + 2] == '' then
    redis.call('HDEL', KEYS[1], '')
    break
  end
end
local at = 4 + 3 * cells
if at <= #ARGV then
  local stream, failed = stream_of(KEYS[2])
  if failed then return failed end
  if not stream or known_as(redis.call('HGET', KEYS[3], KEYS[2]), stream) ~= ARGV[1] then return {'CHANGED'} end
  if there[0] then redis.call('HSET', KEYS[1], ARGV[4], there[0]) end
  know(KEYS[3], KEYS[2], ARGV[1], stream)
  local rows, last = 0, nil
  while at <= #ARGV do
    local words = tonumber(ARGV[at])
    if ARGV[2] == '' then
      last = redis.call('XADD', KEYS[2], '*', unpack(ARGV, at + 1, at + words))
    else
      last = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 1, at + words))
    end
    at, rows = at + words + 1, rows + 1
  end
  know(KEYS[3], KEYS[2], ARGV[1], {['entries-added'] = stream['entries-added'] + rows, ['last-generated-id'] = last})
end
for i = 0, cells - 1 do
  local cell = 4 + 3 * i
  if ARGV[cell + 2] == '' then
    redis.call('HDEL', KEYS[1], ARGV[cell])
  else
    redis.call('HSET', KEYS[1], ARGV[cell], ARGV[cell + 2])
  end
end
return {'OK'}
"""
)

NOTE = Script(
    _STREAM
    + """
-- KEYS stream, known streams. ARGV the stream's id. Notes what was added to it by others than a commit.
local stream, failed = stream_of(KEYS[1])
if failed then return failed end
if not stream or known_as(redis.call('HGET', KEYS[2], KEYS[1]), stream) ~= ARGV[1] then return {'CHANGED'} end
know(KEYS[2], KEYS[1], ARGV[1], stream)
return {'OK'}
"""
)

LOOK = Script(
    _STREAM
    + f"""
-- KEYS stream, known streams. Answers its id, how many entries it has and how many it ever had.
local stream, failed = stream_of(KEYS[1])
if failed then return failed end
if not stream then return {{}} end
local id = known_as(redis.call('HGET', KEYS[2], KEYS[1]), stream)
return {{id or '{UNKNOWN_ID}', stream['length'], stream['entries-added']}}
"""
)

KNOW = Script(
    _STREAM
    + """
-- KEYS stream, known streams. ARGV an id for one that has none, whether a missing one is made. Answers as LOOK does,
-- and whether it was made.
local stream, failed = stream_of(KEYS[1])
if failed then return failed end
local made = 0
if not stream then
  if ARGV[2] ~= '1' then return {} end
  redis.call('HDEL', KEYS[2], KEYS[1])
  redis.call('XADD', KEYS[1], 'MAXLEN', 0, '*', 'sinkpipeline', '')
  stream, made = stream_of(KEYS[1]), 1
end
local id = known_as(redis.call('HGET', KEYS[2], KEYS[1]), stream)
if not id then
  id = ARGV[1]
  know(KEYS[2], KEYS[1], id, stream)
end
return {id, stream['length'], stream['entries-added'], made}
"""
)

DELETE = Script(
    _STREAM
    + """
-- KEYS stream, known streams. ARGV the id of what is to go.
local stream, failed = stream_of(KEYS[1])
if failed then return failed end
if stream and known_as(redis.call('HGET', KEYS[2], KEYS[1]), stream) ~= ARGV[1] then return {'CHANGED'} end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], KEYS[1])
return {'OK'}
"""
)
