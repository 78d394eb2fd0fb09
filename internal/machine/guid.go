package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"slices"
	"sync"

	crand "crypto/rand"
)

// hostGUID returns the node GUID of a device without an Ethernet address. It is the same in all
// processes of a boot and network namespace of this host, and marked as not globally unique.
func hostGUID(at string) uint64 {
	h := sha256.Sum256(slices.Concat(host(), []byte(at)))
	const universal = 2 << 56
	return binary.BigEndian.Uint64(h[:])&^universal | 1 // never 0
}

// host returns a value that is unique to this boot of the host and this network namespace, or a random number if the
// system has no such value.
var host = sync.OnceValue(func() []byte {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = make([]byte, 16)
		crand.Read(boot)
	}
	net, _ := os.Readlink("/proc/self/ns/net")
	return append(boot, net...)
})
