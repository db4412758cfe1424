//go:build !linux

package hangup

type (
	poll   struct{}
	member struct{}
)

func (*Watcher) add(*Conn) bool { return false }

func (*Watcher) remove(*Conn) {}
