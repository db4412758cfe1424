package dial

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
)

// slots are the streams of one HTTP/2 connection, counted against what its server allows (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113, section
// 5.1.2). grpc-go keeps that number to itself, and a call for which there is no stream waits without a word, so it is read off the wire.
type slots struct {
	member  *member
	watched bool // one of the streams is the health watch's
	usable  atomic.Bool
	limit   atomic.Int64 // as the server has said; noLimit until then
	used    atomic.Int64
	done    func(balancer.DoneInfo) // gives one back
}

const noLimit = math.MaxUint32

func newSlots(m *member, watched bool) *slots {
	s := &slots{member: m, watched: watched}
	s.limit.Store(noLimit)
	s.done = func(balancer.DoneInfo) {
		s.used.Add(-1)
		m.used.Add(-1)
	}
	return s
}

// watchable says whether the server allows a stream besides calls.
func (s *slots) watchable() bool { return s.limit.Load() > 1 }

// room is how many calls there may be at a time.
func (s *slots) room() int64 {
	if s.watched && s.watchable() {
		return s.limit.Load() - 1
	}
	return s.limit.Load()
}

func (s *slots) full() bool { return s.used.Load() >= s.room() }

// take takes a stream for a call, unless there is none left.
func (s *slots) take() bool {
	if s.used.Add(1) > s.room() {
		s.used.Add(-1)
		return false
	}
	s.member.used.Add(1)
	return true
}

// queue counts a call that may have to wait for its stream.
func (s *slots) queue() {
	s.used.Add(1)
	s.member.used.Add(1)
}

type slotsKey struct{}

// attach returns addr with s, which the handshake of its connections finds there.
func (s *slots) attach(addr resolver.Address) resolver.Address {
	addr.Attributes = addr.Attributes.WithValue(slotsKey{}, s)
	return addr
}

// counting are credentials whose connections tell their slots what the server allows. They are also how the balancing policy learns which
// member it balances for: grpc-go hands a policy nothing else of its connection.
type counting struct {
	credentials.TransportCredentials
	member *member
}

// ClientHandshake returns a connection that listens for what the server allows.
func (c *counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	s, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(slotsKey{}).(*slots)
	if !ok {
		return conn, info, nil
	}
	s.limit.Store(noLimit) // the connection before it may have had another server
	return &settingsConn{Conn: conn, slots: s}, info, nil
}

// Clone returns credentials for the same member.
func (c *counting) Clone() credentials.TransportCredentials {
	return &counting{c.TransportCredentials.Clone(), c.member}
}

// settingsConn reads the SETTINGS frame with which every HTTP/2 server begins (RFC 9113, section 3.4). Later ones are not looked at: a server that
// lowers its bound while it runs makes calls wait, as they would without all this.
type settingsConn struct {
	net.Conn
	slots *slots
	begun []byte
	over  bool
}

const (
	frameHeader = 9
	setting     = 6
	// maxSettings is far above the settings that there are; a longer frame is not looked at.
	maxSettings = 64 * setting

	settingsFrame        = 0x4
	maxConcurrentStreams = 0x3
)

// Read reads, and looks at what comes first.
func (c *settingsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.over {
		c.look(p[:n])
	}
	return n, err
}

func (c *settingsConn) look(p []byte) {
	c.begun = append(c.begun, p[:min(len(p), frameHeader+maxSettings-len(c.begun))]...)
	if len(c.begun) < frameHeader {
		return
	}
	size := int(c.begun[0])<<16 | int(c.begun[1])<<8 | int(c.begun[2])
	if c.begun[3] != settingsFrame || size > maxSettings {
		c.over, c.begun = true, nil
		return
	}
	if len(c.begun) < frameHeader+size {
		return
	}
	for at := frameHeader; at+setting <= frameHeader+size; at += setting {
		if binary.BigEndian.Uint16(c.begun[at:]) == maxConcurrentStreams {
			c.slots.limit.Store(int64(binary.BigEndian.Uint32(c.begun[at+2:])))
		}
	}
	c.over, c.begun = true, nil
}
