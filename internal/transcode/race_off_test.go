//go:build !race

package transcode_test

// raceEnabled: see race_on_test.go.
const raceEnabled = false
