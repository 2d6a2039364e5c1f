"""What is done inside Redis: one script an operation, so that each is atomic, and how a record lies there.

A value is a string: a mark of its form (`1`), 16 digits of version, 16 digits of the microsecond that it ends at, 16
characters that name the save that wrote it, then the value. Redis' own time to live is a minute longer and only
clears up: what has ended by the clock in use has ended, to the microsecond, also where a new master's clock is a little
off. An index (a sorted set of keys by their ends) tells what is there without a walk over a database that others
may use too; a save takes some of what has ended out of it.

A script reads all before it writes anything, and writes to the index first: wrong types, a full memory and a replica
that takes no writes are thus errors before the first write, and nothing is kept half. Scripts touch declared keys
alone, use no module, and run on Redis 6 and later and on Valkey.

Numbers are exact: a moment in microseconds has 16 digits and stays below 2**53 until the year 2255.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from proxy.errors import StoreError
from proxy.stores.base import Stored

TOKEN_CHARS = 16
_HEAD = 1 + 16 + 16 + TOKEN_CHARS
LONGEST = 4 * 10**15
"""Microseconds that something lives at the most: so that moments stay exact."""
UNKNOWN_FORM = "SIDECALLFORM"

APPLIED, REFUSED, UNSURE = 1, 0, -1
"""What `SAVE` says. UNSURE: an earlier try of the same save may have been applied, and written over since."""
FIRST, AGAIN, LOOK = "first", "again", "look"
"""Which try of a save it is: the first, one behind a connection that broke, or only the question whether it was
applied."""

_COMMON = f"""
local function moment(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local function digits(n) return string.format('%016.0f', n) end
local function known(head) return string.sub(head, 1, 1) == '1' end
local function ends(head) return tonumber(string.sub(head, 18, 33)) end
local function spare(span) return string.format('%.0f', math.ceil(span / 1000) + 60000) end
local newer = '{UNKNOWN_FORM} A record has a form that this release does not know'
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest that Redis knows it by."""

    text: str
    sha: str


def _script(text: str) -> Script:
    whole = _COMMON + text
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


# KEYS: values. ARGV: now (empty: Redis' own). Gives the live ones, and those of a form that is not known here.
LOAD = _script("""
local now, found = moment(ARGV[1]), {}
for first = 1, #KEYS, 1000 do
  local some = redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))
  for i, value in ipairs(some) do
    found[first + i - 1] = value and (not known(value) or ends(value) > now) and value
  end
end
return found
""")

# KEYS: the index, then the values. ARGV: now, token, try, then for each value its name, version that must be there
# (empty: any), span of life (empty: delete) and content. Conditions are judged before anything is written.
SAVE = _script(f"""
local now, token, try = moment(ARGV[1]), ARGV[2], ARGV[3]
local seen, refused = {{}}, false
for i = 2, #KEYS do
  local head = redis.call('GETRANGE', KEYS[i], 0, {_HEAD - 1})
  seen[KEYS[i]] = 0
  if head ~= '' then
    if not known(head) then return redis.error_reply(newer) end
    if try ~= '{FIRST}' and string.sub(head, 34, {_HEAD}) == token then return {APPLIED} end
    if ends(head) > now then seen[KEYS[i]] = tonumber(string.sub(head, 2, 17)) end
  end
  local wanted = ARGV[4 * i - 3]
  refused = refused or (wanted ~= '' and tonumber(wanted) ~= seen[KEYS[i]])
end
if try == '{LOOK}' or (try == '{AGAIN}' and refused) then return {UNSURE} end
if refused then return {REFUSED} end
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(now), 'LIMIT', 0, 20)
for i = 2, #KEYS do
  local name, span = ARGV[4 * i - 4], ARGV[4 * i - 2]
  if span == '' then
    redis.call('UNLINK', KEYS[i])
    redis.call('ZREM', KEYS[1], name)
    seen[KEYS[i]] = 0
  else
    local until_ = now + tonumber(span)
    seen[KEYS[i]] = seen[KEYS[i]] + 1
    local head = '1' .. digits(seen[KEYS[i]]) .. digits(until_) .. token
    redis.call('ZADD', KEYS[1], digits(until_), name)
    redis.call('SET', KEYS[i], head .. ARGV[4 * i - 1], 'PX', spare(tonumber(span)))
  end
end
for _, name in ipairs(ended) do
  local score = redis.call('ZSCORE', KEYS[1], name)
  if score and tonumber(score) <= now then redis.call('ZREM', KEYS[1], name) end
end
return {APPLIED}
""")

# KEYS: the index, then the values. ARGV: now, span, then the name of each value.
TOUCH = _script("""
local now, span = moment(ARGV[1]), tonumber(ARGV[2])
local until_ = now + span
for i = 2, #KEYS do
  local head = redis.call('GETRANGE', KEYS[i], 0, 32)
  if head ~= '' and known(head) and ends(head) > now and ends(head) < until_ then
    redis.call('ZADD', KEYS[1], digits(until_), ARGV[i + 1])
    redis.call('SETRANGE', KEYS[i], 17, digits(until_))
    redis.call('PEXPIRE', KEYS[i], spare(span))
  end
end
return 1
""")

# KEYS: a list of moments. ARGV: now, limit, window. A clock that was set back gives no moment before the last one, so
# that the list stays in order; what has left the window is found by halving.
COUNT = _script("""
local now, limit, window = moment(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local last = redis.call('LINDEX', KEYS[1], -1)
if last and tonumber(last) > now then now = tonumber(last) end
local size = redis.call('LLEN', KEYS[1])
local low, high = 0, size
while low < high do
  local middle = math.floor((low + high) / 2)
  if tonumber(redis.call('LINDEX', KEYS[1], middle)) <= now - window then low = middle + 1 else high = middle end
end
if size - low >= limit then return 0 end
redis.call('RPUSH', KEYS[1], digits(now))
if low > 0 then redis.call('LTRIM', KEYS[1], low, -1) end
redis.call('PEXPIRE', KEYS[1], spare(window))
return 1
""")

# KEYS: the index. ARGV: now, cursor, glob. Gives the next cursor and the live names of a page.
PAGE = _script("""
local now = moment(ARGV[1])
local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'MATCH', ARGV[3], 'COUNT', 1000)
local live = {page[1]}
for i = 1, #page[2], 2 do
  if tonumber(page[2][i + 1]) > now then live[#live + 1] = page[2][i] end
end
return live
""")

# KEYS: values. Gives 1 for each that is there: where Redis evicts, the index may know of more.
THERE = _script("""
local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('EXISTS', key) end
return found
""")

# KEYS: the index. ARGV: now. What lives longest comes first: among it are the few keys that do not count.
EMPTY = _script("""
local now, from = moment(ARGV[1]), 0
while true do
  local some = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. digits(now), 'LIMIT', from, 50)
  for _, name in ipairs(some) do
    if string.sub(name, 1, 5) ~= 'meta:' then return 0 end
  end
  if #some < 50 then return 1 end
  from = from + 50
end
""")


def read_record(raw: bytes) -> Stored:
    """Raises StoreError for a record of a form that is not known here."""
    if not raw.startswith(b"1") or not raw[1:33].isdigit():
        raise StoreError("A record in Redis has a form that this release does not know.")
    return Stored(raw[_HEAD:], int(raw[1:17]))
