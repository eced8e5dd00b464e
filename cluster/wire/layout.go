package wire

// Sizes and places of the format, bytes. The drawing is in doc.go.
const (
	headerLen   = 2256
	lightLen    = 16
	gossipLen   = 104
	ipLen       = 46
	slotsLen    = 2048
	extHeader   = 8
	moduleFixed = 13

	atLength     = 4
	atVersion    = 8
	atPort       = 10
	atType       = 12
	atCount      = 14
	atEpoch      = 16
	atConfig     = 24
	atOffset     = 32
	atSender     = 40
	atSlots      = 80
	atPrimary    = 2128
	atIP         = 2168
	atExtensions = 2214
	atPPort      = 2246
	atBusPort    = 2248
	atFlags      = 2250
	atState      = 2252
	atBits       = 2253

	signature = "RCmb"
	version   = 1
	lightBit  = 0x8000
)

// MaxLength is the longest packet that is taken: a publication of the largest argument that a client may send by
// default, 512 MiB, and what stands around it.
const MaxLength = 512<<20 + 1<<20

// HeadLength is how many bytes Length needs.
const HeadLength = 14

// PrefixLength is how many bytes SenderOf needs.
const PrefixLength = atSender + IDLen

// extension types.
const (
	extHostname   = 0
	extNodename   = 1
	extForgotten  = 2
	extShard      = 3
	extClientIPv4 = 4
	extClientIPv6 = 5
)

// secretLen is the length on the wire of Redis 8's extension of type 4, which is not Valkey's of the same number.
const secretLen = 48
