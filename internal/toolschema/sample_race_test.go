//go:build race

package toolschema_test

// slower is how many times fewer schemas are taken under the race detector, which makes the validator slow.
const slower = 5
