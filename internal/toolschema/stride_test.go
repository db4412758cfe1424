//go:build !race

package toolschema_test

// stride is which share of the corpus schemas is compiled: all.
const stride = 1
