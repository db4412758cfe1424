package mesh

import (
	"errors"
	"net"
	"sync"
	"time"
)

// lateListener accepts connections whose read deadlines are set when something is read. net/http and the doors set and take back half a dozen for every
// request, of which those of the waits for a request and for the caller to go are all that is ever waited with: each of the others is a timer of the
// runtime started or stopped for nothing.
type lateListener struct{ net.Listener }

// Accept returns the next connection.
func (l lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lateConn{Conn: c}, nil
}

// lateConn is a connection that has the read deadline it was given last by the time that a Read could wait, and while one does.
type lateConn struct {
	net.Conn

	mu      sync.Mutex
	reading int       // Reads under way
	wanted  time.Time // the deadline that the connection is to have
	set     time.Time // the one that it has
}

// Read reads, within the deadline.
func (c *lateConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.reading++
	err := c.settle()
	c.mu.Unlock()
	n := 0
	if err == nil {
		n, err = c.Conn.Read(p)
	}
	c.mu.Lock()
	c.reading--
	c.mu.Unlock()
	return n, err
}

// SetReadDeadline is for the Reads under way and those to come.
func (c *lateConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = t
	if c.reading == 0 {
		return nil
	}
	return c.settle()
}

// settle gives the connection its deadline. It is called with the mutex held.
func (c *lateConn) settle() error {
	if c.wanted.Equal(c.set) {
		return nil
	}
	c.set = c.wanted
	return c.Conn.SetReadDeadline(c.wanted)
}

// SetDeadline is for writes at once, and for Reads as SetReadDeadline.
func (c *lateConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite tells the caller that nothing more comes, where the connection can.
func (c *lateConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
