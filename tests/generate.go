// Package tests holds the tests that run the built binary before real servers. This package itself is empty.
package tests

//go:generate go run ./internal/protogen
