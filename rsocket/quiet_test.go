package rsocket

import "testing"

// The ID of a send has the number and size of the unsignaled messages that its completion covers.
func TestSendID(t *testing.T) {
	for _, quiet := range []unsignaled{{}, {bytes: 1, wrs: 1}, {bytes: maxQuiet * lowWater, wrs: maxQuiet}} {
		o, value, got := splitID(sendID(opData, valueMask, quiet))
		if o != opData || value != valueMask || got != quiet {
			t.Errorf("%v of %d with %+v, want %+v", o, value, got, quiet)
		}
		if sendID(opData, 0, quiet) == 0 {
			t.Errorf("%+v: the ID of a receive", quiet)
		}
	}
}

// A writer that fills the ring or the send queue waits for a message that is signaled.
func TestQuietLeavesRoom(t *testing.T) {
	for _, test := range []struct {
		name          string
		buffer, depth int
		size          int
		most          int // unsignaled messages in a row
	}{
		{"the defaults, a byte", defaultBuffer, defaultDepth, 1, maxQuiet},
		{"the defaults, the longest", defaultBuffer, defaultDepth, lowWater, maxQuiet},
		{"the defaults, too long", defaultBuffer, defaultDepth, lowWater + 1, 0},
		{"a small ring", minBuffer, defaultDepth, 100, minBuffer / 4 / 100},
		{"a small ring, long messages", minBuffer, defaultDepth, lowWater, 0},
		{"a short queue", defaultBuffer, minDepth, 1, (minDepth - ctrlReserve) / 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := sender{buffer: test.buffer, free: test.buffer, wrs: test.depth - ctrlReserve, allowed: 1 << 15}
			s.halves[0].length = 1 << 30
			row := 0
			for s.mayBeQuiet(test.size, test.depth) {
				if s.room(test.size) != test.size {
					t.Fatalf("no room after %d unsignaled messages, which have no completion", row)
				}
				s.take(test.size)
				s.quiet.bytes += test.size
				s.quiet.wrs++
				row++
			}
			if row != test.most {
				t.Errorf("%d unsignaled messages in a row, want %d", row, test.most)
			}
			if s.room(test.size) == 0 {
				t.Error("no room for the signaled one")
			}
		})
	}
}
