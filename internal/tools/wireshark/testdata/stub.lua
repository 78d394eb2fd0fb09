-- This is the part of Wireshark's Lua API that the plugin needs. It runs the plugin under other versions of Lua than that of the
-- installed tshark. "lua stub.lua PLUGIN KIND" reads packets from standard input, one on a line: the offset of the IP header, the
-- offset of the UDP header, whether the packet is IPv6, and the frame in hexadecimal. It prints the verdict on the ICRC and the Info
-- column. KIND is the kind of numbers that the bit library returns, integer or float, because versions of Lua differ.

local function normal(n) -- to a signed number of 32 bits, as BitOp does
  n = n % 4294967296
  if n >= 2147483648 then n = n - 4294967296 end
  if arg[2] == "float" then return n + 0.0 end
  return math.tointeger and math.tointeger(n) or n
end
local raw
if _VERSION == "Lua 5.2" then
  raw = bit32
else
  local function op(text) return load("local a, b = ...; a, b = math.tointeger(a) & 0xFFFFFFFF, b and math.tointeger(b) & 0xFFFFFFFF; return " .. text) end
  raw = { band = op("a & b"), bxor = op("a ~ b"), bnot = op("~a"), rshift = op("a >> b") }
end
bit = {}
for name, f in pairs({ band = raw.band, bxor = raw.bxor, bnot = raw.bnot, rshift = raw.rshift }) do
  bit[name] = function(a, b) return normal(f(a % 4294967296, b and b % 4294967296)) end
end
bit32, unpack = nil, nil -- Lua 5.4 does not have them

local function maker(kind) return function(filter, ...) return { kind = kind, filter = filter } end end
ProtoField = setmetatable({}, { __index = function(_, kind) return maker(kind) end })
base = setmetatable({}, { __index = function(_, k) return k end })
expert = { group = base, severity = base }
ProtoExpert = { new = function(filter) return { filter = filter } end }
Pref = { bool = function(_, default) return default end }

local proto
function Proto(name) proto = { name = name, prefs = {} }; return proto end
DissectorTable = { get = function() return { get_dissector = function() return nil end, add = function(_, port, p) assert(port == 4791 and p == proto) end } end }

local frame, ip_at, udp_at, v6
local function range(at, n)
  local r = {}
  local function number(first, last, step)
    local v = 0
    for i = first, last, step do v = v * 256 + frame:byte(i) end
    return v
  end
  function r:uint() return number(at + 1, at + n, 1) end
  function r:le_uint() return number(at + n, at + 1, -1) end
  function r:uint64() return { tohex = function() return (frame:sub(at + 1, at + n):gsub(".", function(c) return string.format("%02x", c:byte()) end)) end } end
  function r:raw() return frame:sub(at + 1, at + n) end
  return r
end
local function found(at, n) return at and { offset = at, range = range(at, n) } or nil end
Field = { new = function(name)
  return function()
    if name == "udp" then return found(udp_at, 8) end
    if (name == "ipv6") == v6 then return found(ip_at, udp_at - ip_at) end
  end
end }
local function tvb(at)
  local t = { len = function() return #frame - at end, reported_len = function() return #frame - at end,
    raw = function(_, off, n) return frame:sub(at + off + 1, at + off + n) end }
  return setmetatable(t, { __call = function(_, off, n) return range(at + (off or 0), n or #frame - at) end })
end
local status
local item = {}
function item.add(_, field, _, value)
  if field and field.filter == "roce.icrc.status" then status = value end
  return item
end
item.add_le = item.add
function item.set_text() return item end
function item.set_generated() return item end
function item.add_proto_expert_info() end

dofile(arg[1])
for line in io.lines() do
  local a, b, six, hex = line:match("^(%d+) (%d+) (%a+) (%x+)$")
  ip_at, udp_at, v6, status = tonumber(a), tonumber(b), six == "true", "none"
  frame = hex:gsub("..", function(c) return string.char(tonumber(c, 16)) end)
  local pinfo = { cols = {} }
  proto.dissector(tvb(udp_at + 8), pinfo, item)
  print(tostring(status) .. "\t" .. tostring(pinfo.cols.info))
end
