package interceptors

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// halves are a policy for the calls of one method in two halves, so that nothing of it is on the stack while a call is further in. A stream may wait
// there for days, and a goroutine keeps a stack that is four times as large as what it waits with: with a dozen interceptors around it, 16 KiB.
type halves struct {
	// enter is what is done before the call goes on, with the stream that it returns. Without one the call ends here, with the error, which may be nil;
	// errAround has around run it.
	enter func(c *call.Call, stream grpc.ServerStream) (inner grpc.ServerStream, err error)
	// leave is what is done when the call has come back, or has panicked, which is errPanic; what it returns is then of no interest. It is given the
	// stream that enter returned. Nil: nothing.
	leave func(c *call.Call, inner grpc.ServerStream, err error) error
	// caught returns the error of a call that has panicked; nil lets the panic go on.
	caught func(c *call.Call, stream grpc.ServerStream, panicked any) error
	// around is the policy as an interceptor: for those calls that enter says, or, without enter, for all.
	around grpc.StreamServerInterceptor
}

// errAround is what enter returns for a call that is intercepted.
var errAround = errors.New("the call is intercepted")

// inHalves returns a policy that may be in halves. of returns nil if it has nothing to do for a method's calls.
func inHalves(name string, of func(m *catalog.Method) *halves) Policy {
	return Policy{Name: name, halves: of, For: func(m *catalog.Method) grpc.StreamServerInterceptor {
		h := of(m)
		switch {
		case h == nil:
			return nil
		case h.enter == nil:
			return h.around
		}
		return h.intercept
	}}
}

// intercept is the policy by itself, outside of a Chain.
func (h *halves) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	c := call.FromContext(stream.Context())
	if c == nil {
		return errNoCall
	}
	if h.caught != nil {
		defer func() {
			if r := recover(); r != nil {
				err = h.caught(c, stream, r)
			}
		}()
	}
	inner, err := h.enter(c, stream)
	switch {
	case errors.Is(err, errAround):
		return h.around(srv, stream, info, next)
	case inner == nil:
		return err
	case h.leave == nil:
		return next(srv, inner)
	}
	came := false
	defer func() {
		if !came {
			_ = h.leave(c, inner, errPanic)
		}
	}()
	err = next(srv, inner)
	came = true
	return h.leave(c, inner, err)
}

// stretch is links in a row that are in halves. While a call is behind them, one frame for all is on its stack. Only the first may have caught.
type stretch struct {
	links []*link
	next  grpc.StreamHandler
}

// maxHeld bounds the links of a stretch that have a leave.
const maxHeld = 7

// newStretch returns the handler that has a call pass the first of links and all that can be in one stretch with it, then the rest, and final.
func newStretch(links []*link, final grpc.StreamHandler) grpc.StreamHandler {
	n, holds := 0, 0
	for n < len(links) && links[n].enter != nil && (n == 0 || links[n].caught == nil) && holds < maxHeld {
		if links[n].around != nil {
			links[n].rest = handler(links[n+1:], final)
		}
		if links[n].leave != nil {
			holds++
		}
		n++
	}
	s := &stretch{links[:n], handler(links[n:], final)}
	return func(_ any, stream grpc.ServerStream) (err error) {
		p := passing{stretch: s, c: call.FromContext(stream.Context()), stream: stream}
		if p.c == nil {
			return errNoCall
		}
		defer p.catch(&err)
		defer p.unwind()
		switch goesOn, err := p.enter(); {
		case goesOn:
			return p.leave(s.next(nil, p.stream))
		case errors.Is(err, errAround):
			return p.leave(p.around())
		default:
			return p.leave(err)
		}
	}
}

// passing is a call on its way through a stretch.
type passing struct {
	*stretch
	c        *call.Call
	stream   grpc.ServerStream          // as the links that the call has entered have made it
	first    int                        // the step of the first link
	n, holds int                        // how many links the call has entered, and not left, and how many of them have a leave
	held     [maxHeld]grpc.ServerStream // what the enter of these has returned
}

// enter has the call enter one link after the other, until one does not let it go on. Its error is why, or errAround.
func (p *passing) enter() (goesOn bool, err error) {
	p.first = len(p.c.Steps)
	for _, l := range p.links {
		step := p.c.Enter(&l.stage)
		inner, err := l.enter(p.c, p.stream)
		if inner == nil {
			if !errors.Is(err, errAround) {
				p.c.Leave(step)
			}
			return false, err
		}
		p.stream = inner
		if l.leave != nil {
			p.held[p.holds] = inner
			p.holds++
		}
		p.n++
	}
	return true, nil
}

// around has the call intercepted by the link that it has come to.
func (p *passing) around() error {
	l := p.links[p.n]
	err := l.around(nil, p.stream, l.info, l.rest)
	p.c.Leave(p.first + p.n)
	return err
}

// leave has the call leave the links that it has entered.
func (p *passing) leave(err error) error {
	for p.n > 0 {
		p.n--
		if leave := p.links[p.n].leave; leave != nil {
			p.holds--
			err = leave(p.c, p.held[p.holds], err)
		}
		p.c.Leave(p.first + p.n)
	}
	return err
}

// unwind has a call that panics leave the links that it has entered. If one of them panics too, the others are left all the same.
func (p *passing) unwind() {
	if p.n == 0 {
		return
	}
	defer p.unwind()
	p.n--
	if leave := p.links[p.n].leave; leave != nil {
		p.holds--
		_ = leave(p.c, p.held[p.holds], errPanic)
	}
}

// catch ends a panic, if the first link does.
func (p *passing) catch(err *error) {
	caught := p.links[0].caught
	if caught == nil {
		return
	}
	if r := recover(); r != nil {
		*err = caught(p.c, p.stream, r)
	}
}
