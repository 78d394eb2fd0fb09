// Package usage has the errors of invalid options. They name the option, its value and the valid values, and rocectl exits
// with 2.
package usage

import (
	"fmt"
	"slices"
	"strings"
)

// Error is a wrong option.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the error that was wrapped.
func (e Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] with a text, as [fmt.Errorf].
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Range returns nil if v is between low and high, else an [Error]. option is the name on the command line, "-n".
func Range(option string, v, low, high int) error {
	if v < low || v > high {
		return Errorf("%s %d: want %d to %d", option, v, low, high)
	}
	return nil
}

// AtLeast returns nil if v is low or more, else an [Error].
func AtLeast(option string, v, low int) error {
	if v < low {
		return Errorf("%s %d: want %d or more", option, v, low)
	}
	return nil
}

// OneOf returns nil if the value of an option is one of those that are possible, else an [Error].
func OneOf(option, value string, possible ...string) error {
	if slices.Contains(possible, value) {
		return nil
	}
	return Errorf("%s %s: want %s", option, value, OrList(possible))
}

// OrList joins words to "a, b or c".
func OrList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
