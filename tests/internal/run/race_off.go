//go:build !race

package run

// Race says whether the tests were built with the race detector.
const Race = false
