// Package hangup tells when the peers of connections go that nobody reads from.
package hangup

import (
	"net"
	"sync"
)

// Watcher watches connections. Where the system and the kind of connection allow, which is TCP on Linux, one goroutine does for all of them; otherwise
// each has its own. The zero value watches none, and holds nothing; neither does a watcher whose connections are all closed or gone.
type Watcher struct {
	mu   sync.Mutex
	poll poll
}

// Conn is a connection that is watched. What its peer sends is thrown away.
type Conn struct {
	net.Conn
	watcher *Watcher
	member  member
	once    sync.Once
	gone    func()
}

// Watch watches c from now on, which nobody else may read from. gone is called once, when the peer has closed its side, the connection has broken, or
// Close is called. It must not wait for anything, nor call Close. Conn.Close must be called in place of c.Close, also after gone.
func (w *Watcher) Watch(c net.Conn, gone func()) *Conn {
	watched := &Conn{Conn: c, watcher: w, gone: gone}
	if !w.add(watched) {
		go watched.listen()
	}
	return watched
}

// Close closes the connection. gone has been called when it returns.
func (c *Conn) Close() error {
	c.watcher.remove(c)
	err := c.Conn.Close()
	c.tell()
	return err
}

func (c *Conn) tell() { c.once.Do(c.gone) }

// listen waits until the peer has gone, on a goroutine of the connection's own.
func (c *Conn) listen() {
	defer c.tell()
	var b [64]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return
		}
	}
}
