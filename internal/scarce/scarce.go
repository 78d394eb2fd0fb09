// Package scarce makes resources of the system scarce in tests, to check that a failed open leaves nothing open. It
// needs Linux.
package scarce
