// Package apart keeps deep calls off the stacks of goroutines that wait.
package apart

// Run runs f on a goroutine of its own, and waits for it; a panic of f is the caller's. A goroutine keeps the stack that it has needed once, so what
// needs much of it before a long wait, as the opening of a stream or the reading of an event does, is not done by the goroutine that waits: thousands
// of them may.
func Run(f func()) {
	done := make(chan any)
	go func() {
		var panicked any
		defer func() { done <- panicked }()
		defer func() { panicked = recover() }()
		f()
	}()
	if p := <-done; p != nil {
		panic(p) // where it is recovered and logged
	}
}

// Room gives the goroutine that calls it, which has just begun, a stack of 16 KiB at once. One that goes deep gets there anyhow, in several steps. And a
// stack that is larger than what the goroutine waits with is moved by the collector: one that has just the size stays between those of others that have
// ended since, which the system does not get back for it.
//
//go:noinline
func Room() {
	var room [9 << 10]byte
	use(&room)
}

//go:noinline
func use(*[9 << 10]byte) {}
