//go:build race

package toolschema_test

// stride is which share of the corpus schemas is compiled: the race detector makes the validator slow.
const stride = 16
