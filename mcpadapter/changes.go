package mcpadapter

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/catalog"
)

// changeSettle is how long the list of tools must be at rest before clients hear of a change.
const changeSettle = 50 * time.Millisecond

// changes tells connected clients that the list of tools has changed. It watches the catalog only while somebody may want to know.
type changes struct {
	adapter *Adapter

	mu       sync.Mutex
	watchers int
	cancel   context.CancelFunc
	done     chan struct{}
	tell     map[*func()]bool // besides the SDK's sessions
}

// watch makes changes known until release is called, which may be done once.
func (c *changes) watch() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel, c.done = cancel, make(chan struct{})
		snapshot := c.adapter.conf.Catalog.Snapshot()
		go c.run(ctx, c.done, snapshot)
	}
	return func() {
		c.mu.Lock()
		c.watchers--
		last, done := c.watchers == 0, c.done
		if last {
			c.cancel()
		}
		c.mu.Unlock()
		if last {
			<-done
		}
	}
}

// listen is watch, with a function to be called at each change.
func (c *changes) listen(changed func()) (release func()) {
	c.mu.Lock()
	if c.tell == nil {
		c.tell = map[*func()]bool{}
	}
	c.tell[&changed] = true
	c.mu.Unlock()
	unwatch := c.watch()
	return func() {
		c.mu.Lock()
		delete(c.tell, &changed)
		c.mu.Unlock()
		unwatch()
	}
}

func (c *changes) run(ctx context.Context, done chan<- struct{}, snapshot *catalog.Snapshot) {
	defer close(done)
	known := c.adapter.listingsOf(snapshot).all.hash
	for {
		select {
		case <-ctx.Done():
			return
		case <-snapshot.Superseded():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(changeSettle):
		}
		snapshot = c.adapter.conf.Catalog.Snapshot()
		if hash := c.adapter.listingsOf(snapshot).all.hash; hash != known {
			known = hash
			c.announce()
		}
	}
}

// announce tells all listeners, and makes the SDK send notifications/tools/list_changed to all sessions and to its own listeners. It does so only when a tool is added to
// its own registry; the one added here is never listed or called, since this door answers tools/list and tools/call itself.
func (c *changes) announce() {
	c.mu.Lock()
	tell := slices.Collect(maps.Keys(c.tell))
	c.mu.Unlock()
	for _, changed := range tell {
		(*changed)()
	}
	c.adapter.server.AddTool(&mcp.Tool{Name: "toolway_list_changed", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
}
