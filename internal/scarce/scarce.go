// Package scarce makes resources of the system scarce in tests, to see that what fails
// to open leaves nothing open. It needs Linux.
package scarce
