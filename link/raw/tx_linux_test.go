package raw

import "testing"

// TestRun: what may go as one super-packet, and what may not.
func TestRun(t *testing.T) {
	type slots []struct {
		size int
		edit func(b []byte) // nil: the next Identification
	}
	for _, v6 := range []bool{false, true} {
		ip := 14
		for _, test := range []struct {
			name  string
			slots slots
			want  int
		}{
			{"one", slots{{100, nil}}, 1},
			{"two", slots{{100, nil}, {100, nil}}, 2},
			{"last is shorter", slots{{100, nil}, {100, nil}, {4, nil}, {4, nil}}, 3},
			{"next is longer", slots{{100, nil}, {104, nil}}, 1},
			{"other destination", slots{{100, nil}, {100, func(b []byte) { b[5]++ }}}, 1},
			{"ECN mark", slots{{100, nil}, {100, func(b []byte) { b[ip+1] ^= 0x30 }}}, 1},
			{"TTL or hop limit", slots{{100, nil}, {100, func(b []byte) {
				if v6 {
					b[ip+7]--
				} else {
					b[ip+8]--
				}
			}}}, 1},
			{"other source port", slots{{100, nil}, {100, nil}, {100, func(b []byte) { b[len(b)-100-7]++ }}}, 2},
			{"UDP checksum", slots{{100, nil}, {100, func(b []byte) { b[len(b)-100-1] = 1 }}}, 1},
		} {
			var x tx
			x.init(1500)
			for i, s := range test.slots {
				b := packet(t, v6, 0, s.size)
				if e, _ := look(b); !v6 {
					b[e.ip+5] += byte(i)
					setLengths(b, e, s.size)
				}
				if s.edit != nil {
					s.edit(b)
				}
				x.slots[i].n = copy(x.slots[i].b, b)
				x.queued++
			}
			n, _, body := x.run(0)
			total := 0
			for _, s := range test.slots[:n] {
				total += s.size
			}
			if n != test.want || n > 1 && body != total {
				t.Errorf("v6=%v, %s: run of %d with %d bytes, want %d with %d", v6, test.name, n, body, test.want, total)
			}
		}
	}
	// An Identification out of order, as a packet that was held back has.
	var x tx
	x.init(1500)
	for i := range 2 {
		x.slots[i].n = copy(x.slots[i].b, packet(t, false, 0, 100))
	}
	x.queued = 2
	if n, _, _ := x.run(0); n != 1 {
		t.Errorf("packets with one Identification run together")
	}
}

func TestRunLimits(t *testing.T) {
	var x tx
	x.init(9000)
	for i := range x.slots {
		b := packet(t, true, 0, 4100)
		x.slots[i].n = copy(x.slots[i].b, b)
	}
	x.queued = len(x.slots)
	n, e, body := x.run(0)
	if whole := e.body - e.ip + body; whole > maxSuper || whole+4100 <= maxSuper || n != body/4100 {
		t.Errorf("run of %d packets, %d bytes", n, whole)
	}
	if m := x.build(); m != len(x.slots) { // no vnet header, no GSO
		t.Errorf("%d messages without GSO, want %d", m, len(x.slots))
	}
	x.vnet = true
	x.gso.Store(true)
	if m := x.build(); m != (len(x.slots)+n-1)/n {
		t.Errorf("%d messages with GSO, want %d", m, (len(x.slots)+n-1)/n)
	}
}
