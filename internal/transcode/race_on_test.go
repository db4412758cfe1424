//go:build race

package transcode_test

// raceEnabled: the race detector makes sync.Pool drop what it holds at random, so that allocations cannot be counted.
const raceEnabled = true
