local bit = bit or bit32
local unpack = unpack or table.unpack
local band, bxor, bnot, rshift = bit.band, bit.bxor, bit.bnot, bit.rshift

local roce = Proto("roce", "RDMA over Converged Ethernet v2")

local verdicts = { [0] = "wrong", [1] = "right", [2] = "not verified", [3] = "wrong, but as rxe of Linux has it for FLUSH" }

local opcode_names = {}
for op, row in pairs(opcodes) do opcode_names[op] = row.name end

-- The fields of the protocol, by name. Headers that share a field share its name.
local makers = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [3] = ProtoField.uint24, [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
local fields = {
  opcode = ProtoField.uint8("roce.opcode", "Opcode", base.HEX, opcode_names),
  name = ProtoField.string("roce.name", "Name of the opcode"),
  transport = ProtoField.string("roce.transport", "Transport"),
  header = ProtoField.none("roce.header", "Header"),
  payload = ProtoField.bytes("roce.payload", "Payload"),
  payload_len = ProtoField.uint32("roce.payload_len", "Length of the payload", base.DEC),
  padding = ProtoField.bytes("roce.padding", "Padding"),
  icrc = ProtoField.uint32("roce.icrc", "Invariant CRC", base.HEX),
  icrc_status = ProtoField.uint8("roce.icrc.status", "Verdict on the ICRC", base.DEC, verdicts),
}
for _, h in ipairs(headers) do
  for _, f in ipairs(h.fields) do
    local name, label, _, size, mask, show = unpack(f)
    if fields[name] == nil then
      local filter = "roce." .. name
      if show == "flag" then
        fields[name] = ProtoField.bool(filter, label, 8 * size, nil, mask)
      else
        fields[name] = makers[size](filter, label, show == "hex" and base.HEX or base.DEC, values[name], mask ~= 0 and mask or nil)
      end
    end
  end
end
local list = {}
for _, f in pairs(fields) do list[#list + 1] = f end
roce.fields = list

local experts = {
  icrc = ProtoExpert.new("roce.icrc.bad", "The ICRC is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
  quirk = ProtoExpert.new("roce.icrc.quirk", "The ICRC is wrong, but as rxe of Linux has it for FLUSH", expert.group.CHECKSUM, expert.severity.WARN),
  unknown = ProtoExpert.new("roce.opcode.unknown", "The opcode is unknown", expert.group.PROTOCOL, expert.severity.WARN),
  short = ProtoExpert.new("roce.short", "The packet is too short for its headers", expert.group.MALFORMED, expert.severity.ERROR),
  nak = ProtoExpert.new("roce.nak", "The responder refuses the request", expert.group.SEQUENCE, expert.severity.NOTE),
  joined = ProtoExpert.new("roce.joined", "Several packets, which the host joined: \"rocectl pcap decode\" divides them", expert.group.REASSEMBLE, expert.severity.NOTE),
}
local expert_list = {}
for _, e in pairs(experts) do expert_list[#expert_list + 1] = e end
roce.experts = expert_list

roce.prefs.verify = Pref.bool("Verify the ICRC", true, "Computes the invariant CRC of each packet")
roce.prefs.inner = Pref.bool("Call Wireshark's own dissector, too", true,
  "For the opcodes that it knows: it shows management datagrams and the protocols above RDMA, and sets the fields of infiniband")

local ip4, ip6, udp = Field.new("ip"), Field.new("ipv6"), Field.new("udp")

-- The table of CRC-32 (reflected polynomial 0xEDB88320).
local crc_table = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    if band(c, 1) ~= 0 then c = bxor(rshift(c, 1), 0xEDB88320) else c = rshift(c, 1) end
  end
  crc_table[i] = c
end

local function crc_update(c, s)
  for i = 1, #s do c = bxor(rshift(c, 8), crc_table[band(bxor(c, s:byte(i)), 0xFF)]) end
  return c
end

-- ones replaces bytes of a string, counted from 0, by 0xFF.
local function ones(s, ...)
  for _, at in ipairs({ ... }) do s = s:sub(1, at) .. "\255" .. s:sub(at + 2) end
  return s
end

-- innermost returns the last IP header of the frame, and whether it is an IPv6 header. In a tunnel there are several IP headers.
local function innermost()
  local found, v6 = nil, false
  for _, f in ipairs({ ip4() }) do
    if found == nil or f.offset > found.offset then found, v6 = f, false end
  end
  for _, f in ipairs({ ip6() }) do
    if found == nil or f.offset > found.offset then found, v6 = f, true end
  end
  return found, v6
end

-- icrc_register returns the CRC register after the headers below the BTH, or nil if these headers are not available.
local function icrc_register()
  local ip, v6 = innermost()
  local all = { udp() }
  if ip == nil or #all == 0 then return nil end
  local head, datagram = ip.range:raw(), all[#all].range:raw():sub(1, 8)
  if v6 then
    head = head:sub(1, 40)
    local first = head:byte(1)
    head = string.char(first - first % 16 + 15) .. head:sub(2) -- the upper half of the traffic class
    head = ones(head, 1, 2, 3, 7)                              -- the rest of it, the flow label, the hop limit
  else
    head = ones(head:sub(1, 20), 1, 8, 10, 11) -- type of service, time to live, checksum
  end
  local c = crc_update(-1, "\255\255\255\255\255\255\255\255")
  return crc_update(crc_update(c, head), ones(datagram, 6, 7))
end

-- unsigned converts a number of the bit library, which may be negative, to an unsigned one.
local function unsigned(n) return n < 0 and n + 4294967296 or n end

-- verdict returns 0 wrong, 1 right, 2 not verified, 3 the quirk of rxe.
local function verdict(tvb, row)
  if not roce.prefs.verify or tvb:reported_len() > tvb:len() or tvb:len() > MAX_PACKET then return 2 end
  local c = icrc_register()
  if c == nil then return 2 end
  local n = tvb:len() - ICRC_LEN
  local body, stored = tvb:raw(0, n), tvb(n, ICRC_LEN):le_uint()
  c = crc_update(c, ones(body, 4))
  if unsigned(bnot(c)) == stored then return 1 end
  -- rxe feeds the headers of a FLUSH into the CRC twice, the second time without masking any bits.
  if row.quirk and unsigned(bnot(crc_update(c, body:sub(1, row.len)))) == stored then return 3 end
  return 0
end

local function add_field(tree, tvb, at, f)
  local range = tvb(at + f[3], f[4])
  tree:add(fields[f[1]], range)
  if f[6] == "flag" or f[7] == "" then return nil end
  if f[4] == 8 then return f[7] .. " 0x" .. tostring(range:uint64():tohex()):gsub("^0+(.)", "%1") end
  local v = range:uint()
  if f[5] ~= 0 then
    local mask = f[5]
    v = band(v, mask)
    while band(mask, 1) == 0 do v, mask = rshift(v, 1), rshift(mask, 1) end
  end
  if f[6] == "named" then
    local name = values[f[1]][v] or string.format("%d", v)
    return f[7] == "-" and name or f[7] .. " " .. name
  end
  return f[7] .. (f[6] == "hex" and string.format(" 0x%x", v) or string.format(" %d", v))
end

-- add_header shows a header, and appends the texts of its fields for the Info column to words.
local function add_header(tree, tvb, at, h, words)
  local sub = tree:add(fields.header, tvb(at, h.len)):set_text(h.name)
  for _, f in ipairs(h.fields) do
    local word = add_field(sub, tvb, at, f)
    if word then words[#words + 1] = word end
  end
  return sub
end

local flag_letters = { { 1, 0x80, "SE" }, { 1, 0x40, "M" }, { 8, 0x80, "A" }, { 4, 0x80, "F" }, { 4, 0x40, "B" } }

local function flags_of(tvb)
  local set = {}
  for _, f in ipairs(flag_letters) do
    if band(tvb(f[1], 1):uint(), f[2]) ~= 0 then set[#set + 1] = f[3] end
  end
  return table.concat(set, "|")
end

local function add_icrc(tree, tvb, row)
  local n = tvb:reported_len()
  if n > tvb:len() then
    tree:add(fields.icrc_status, 2):set_generated()
    return 2
  end
  local range = tvb(n - ICRC_LEN, ICRC_LEN)
  tree:add_le(fields.icrc, range)
  local v = verdict(tvb, row)
  local item = tree:add(fields.icrc_status, range, v):set_generated()
  if v == 0 then item:add_proto_expert_info(experts.icrc) end
  if v == 3 then item:add_proto_expert_info(experts.quirk) end
  if n > MAX_PACKET then item:add_proto_expert_info(experts.joined) end
  return v
end

-- dissect shows a packet and returns its text for the Info column.
local function dissect(tvb, root)
  local tree = root:add(roce, tvb())
  local op = tvb(0, 1):uint()
  local row = opcodes[op]
  local opcode = tree:add(fields.opcode, tvb(0, 1))
  if row == nil then
    opcode:add_proto_expert_info(experts.unknown)
    row = { name = string.format("opcode 0x%02x", op), transport = "", headers = {}, len = BTH_LEN, standard = false, quirk = false }
  else
    tree:add(fields.name, tvb(0, 1), row.name):set_generated()
    tree:add(fields.transport, tvb(0, 1), row.transport):set_generated()
  end
  local words = { row.name }
  add_header(tree, tvb, 0, headers[1], words)
  local flags = flags_of(tvb)
  if flags ~= "" then words[#words + 1] = flags end
  if tvb:reported_len() < row.len + ICRC_LEN then
    tree:add_proto_expert_info(experts.short)
    return table.concat(words, " ")
  end
  local at = BTH_LEN
  for _, n in ipairs(row.headers) do
    local h = headers[n]
    if tvb:len() < at + h.len then return table.concat(words, " ") end -- cut by the capture
    local sub = add_header(tree, tvb, at, h, words)
    if h.name == "AETH" and band(tvb(at, 1):uint(), 0x60) ~= 0 then sub:add_proto_expert_info(experts.nak) end
    at = at + h.len
  end
  local pad = rshift(band(tvb(1, 1):uint(), 0x30), 4)
  local n = tvb:reported_len() - at - ICRC_LEN - pad
  if n < 0 then
    tree:add_proto_expert_info(experts.short)
    return table.concat(words, " ")
  end
  tree:add(fields.payload_len, n):set_generated()
  if n > 0 then
    words[#words + 1] = string.format("payload %d", n) -- the bit library of some versions returns floats
    local there = math.min(n, tvb:len() - at)
    if there > 0 then tree:add(fields.payload, tvb(at, there)) end
  end
  if pad > 0 and tvb:len() >= at + n + pad then tree:add(fields.padding, tvb(at + n, pad)) end
  local v = add_icrc(tree, tvb, row)
  if v == 0 or v == 3 then words[#words + 1] = "[ICRC " .. verdicts[v] .. "]" end
  return table.concat(words, " ")
end

local port = DissectorTable.get("udp.port")
local own = port:get_dissector(4791) -- Wireshark's

-- The names in the Protocol column if Wireshark's dissector finds no protocol above RDMA.
local plain = { RRoCE = true, InfiniBand = true }

function roce.dissector(tvb, pinfo, root)
  if tvb:len() < BTH_LEN then return 0 end
  local info = dissect(tvb, root)
  local row = opcodes[tvb(0, 1):uint()]
  local above = false
  if roce.prefs.inner and own and row and row.standard and tvb:reported_len() >= row.len + ICRC_LEN then
    -- Wireshark's dissector raises an error if the capture has cut the packet.
    local whole = pcall(own.call, own, tvb, pinfo, root)
    above = whole and (tvb(5, 3):uint() == 1 or not plain[tostring(pinfo.cols.protocol)])
  end
  if not above then
    pinfo.cols.protocol = "RoCEv2"
    pinfo.cols.info = info
  end
  return tvb:len()
end

port:add(4791, roce)
