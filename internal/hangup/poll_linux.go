package hangup

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// poll is an epoll instance (epoll(7)), while there is something to watch. It is a file that Go's own poller waits for, so that no thread does.
// Descriptors are only touched through their RawConn, which sees to it that they are open, and events are told apart by numbers that are not used again
// soon, not by descriptors, which are.
type poll struct {
	file    *os.File
	fd      int
	members map[int32]*Conn
	last    int32
}

// member is a connection's part in it.
type member struct {
	raw syscall.RawConn
	id  int32 // 0: none
}

// add has c watched, unless that cannot be done.
func (w *Watcher) add(c *Conn) bool {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poll.file == nil && !w.open() {
		return false
	}
	c.member = member{raw, w.poll.number()}
	w.poll.members[c.member.id] = c
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP, Fd: c.member.id}
	if w.control(c, syscall.EPOLL_CTL_ADD, &event) != nil {
		w.drop(c)
		return false
	}
	return true
}

// number returns one that no member has.
func (p *poll) number() int32 {
	for {
		if p.last++; p.last <= 0 {
			p.last = 1
		}
		if p.members[p.last] == nil {
			return p.last
		}
	}
}

// open makes the epoll instance, and a goroutine that ends with it.
func (w *Watcher) open() bool {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return false
	}
	file := os.NewFile(uintptr(fd), "epoll") // which is pollable, being non-blocking
	raw, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil { // Go's poller has not taken it
		_ = file.Close()
		return false
	}
	w.poll.file, w.poll.fd, w.poll.members = file, fd, map[int32]*Conn{}
	go w.run(raw)
	return true
}

// control tells the epoll instance about c. It is called with the mutex held, as drop is.
func (w *Watcher) control(c *Conn, op int, event *syscall.EpollEvent) error {
	var err error
	if open := c.member.raw.Control(func(fd uintptr) { err = syscall.EpollCtl(w.poll.fd, op, int(fd), event) }); open != nil {
		return open
	}
	return err
}

// drop takes c out, and closes the epoll instance after the last.
func (w *Watcher) drop(c *Conn) {
	delete(w.poll.members, c.member.id)
	c.member.id = 0
	if len(w.poll.members) == 0 {
		_ = w.poll.file.Close()
		w.poll.file, w.poll.members = nil, nil
	}
}

// remove has c no longer watched.
func (w *Watcher) remove(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.member.id != 0 {
		_ = w.control(c, syscall.EPOLL_CTL_DEL, &syscall.EpollEvent{}) // if it is closed already, it is no longer in it
		w.drop(c)
	}
}

// run handles events until the epoll instance is closed.
func (w *Watcher) run(instance syscall.RawConn) {
	events := make([]syscall.EpollEvent, 128)
	ready := make([]*Conn, 0, len(events))
	bin := make([]byte, 4<<10)
	for {
		n := 0
		err := instance.Read(func(fd uintptr) bool {
			err := error(syscall.EINTR)
			for errors.Is(err, syscall.EINTR) { // Go's poller would not tell again of what is there already
				n, err = syscall.EpollWait(int(fd), events, 0)
			}
			return n > 0 // otherwise Go's poller waits for an event
		})
		if err != nil {
			return
		}
		w.mu.Lock()
		for _, e := range events[:n] {
			if c := w.poll.members[e.Fd]; c != nil {
				ready = append(ready, c)
			}
		}
		w.mu.Unlock()
		for _, c := range ready {
			if c.drain(bin) {
				w.remove(c)
				c.tell()
			}
		}
		clear(ready)
		ready = ready[:0]
	}
}

// drain throws away some of what the peer has sent. It is true if nothing more comes.
func (c *Conn) drain(bin []byte) (over bool) {
	var n int
	var err error
	if closed := c.member.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), bin)
		return true
	}); closed != nil {
		return true
	}
	switch err {
	case nil:
		return n == 0
	case syscall.EAGAIN, syscall.EINTR:
		return false
	}
	return true
}
