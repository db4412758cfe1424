package shop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolway/toolway/services/shop"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is one process of a shop, in this one.
type process struct {
	url  string
	log  *buffer
	stop func()
}

// start runs a process of the shop, at addr if it is not "".
func start(t *testing.T, addr string, c shop.Config) *process {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{url: "http://" + listener.Addr().String(), log: &buffer{}}
	c.Log = p.log
	done := make(chan error, 1)
	go func() { done <- shop.Run(ctx, listener, c) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(p.stop)
	return p
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// metric reads a metric's value of a process; -1 if it has none.
func metric(t *testing.T, p *process, series string) float64 {
	t.Helper()
	resp, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// The fault makes orders fail more and more, until all do, and a restart of payment mends it.
func TestFault(t *testing.T) {
	inventory := start(t, "", shop.Config{Role: shop.Inventory})
	payment := start(t, "", shop.Config{Role: shop.Payment, Inventory: inventory.url, Connections: 4})
	checkout := start(t, "", shop.Config{Role: shop.Checkout, Inventory: inventory.url, Payment: payment.url})
	for range 20 {
		if code, text := post(t, checkout.url+"/orders?item=tea", ""); code != http.StatusOK {
			t.Fatalf("order: %d %s", code, text)
		}
	}
	if n := metric(t, payment, `connections_in_use{service="payment"}`); n != 0 {
		t.Errorf("connections in use: %v", n)
	}
	if code, text := post(t, payment.url+"/fault", `{"leak":0.5}`); code != http.StatusOK {
		t.Fatalf("fault: %d %s", code, text)
	}
	failed := 0
	for range 12 {
		if code, _ := post(t, checkout.url+"/orders?item=tea", ""); code == http.StatusServiceUnavailable {
			failed++
		}
	}
	// Two charges lose one connection, so the first eight work, and no other.
	if failed != 4 {
		t.Errorf("%d of 12 orders failed, want 4", failed)
	}
	if n := metric(t, payment, `connections_in_use{service="payment"}`); n != 4 {
		t.Errorf("connections in use: %v, want all", n)
	}
	if n := metric(t, checkout, `http_requests_total{code="503",service="checkout"}`); n != 4 {
		t.Errorf("failed orders: %v", n)
	}
	for p, want := range map[*process]string{
		checkout: `"msg":"order failed: payment answered 503 Service Unavailable","service":"checkout","peer":"payment"`,
		payment:  `"msg":"charge failed: no free connection to inventory after 250ms: all 4 are in use","service":"payment"`,
	} {
		if !strings.Contains(p.log.String(), want) || !strings.Contains(p.log.String(), `"level":"ERROR"`) || !strings.Contains(p.log.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c"`) {
			t.Errorf("log: %s, want %s", p.log, want)
		}
		for line := range strings.Lines(p.log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
	addr := strings.TrimPrefix(payment.url, "http://")
	payment.stop()
	start(t, addr, shop.Config{Role: shop.Payment, Inventory: inventory.url, Connections: 4})
	for range 20 {
		if code, text := post(t, checkout.url+"/orders?item=cups", ""); code != http.StatusOK {
			t.Fatalf("order after the restart: %d %s", code, text)
		}
	}
}

func TestLoad(t *testing.T) {
	inventory := start(t, "", shop.Config{Role: shop.Inventory})
	payment := start(t, "", shop.Config{Role: shop.Payment, Inventory: inventory.url})
	checkout := start(t, "", shop.Config{Role: shop.Checkout, Inventory: inventory.url, Payment: payment.url, Load: 200})
	for end := time.Now().Add(patience); metric(t, payment, `http_requests_total{code="200",service="payment"}`) < 20; {
		if time.Now().After(end) {
			t.Fatal("no load")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if metric(t, checkout, `process_start_time_seconds{service="checkout"}`) < 1e9 || metric(t, checkout, `http_request_duration_seconds_count{service="checkout"}`) < 20 {
		t.Error("metrics are missing")
	}
}

func TestRefuses(t *testing.T) {
	inventory := start(t, "", shop.Config{Role: shop.Inventory})
	payment := start(t, "", shop.Config{Role: shop.Payment, Inventory: inventory.url})
	for _, body := range []string{"", "{", "{}", `{"leak":2}`, `{"leak":-1}`, `{"leak":"x"}`} {
		if code, text := post(t, payment.url+"/fault", body); code != http.StatusBadRequest || !strings.Contains(text, "leak") {
			t.Errorf("fault %q: %d %s", body, code, text)
		}
	}
	if code, _ := post(t, payment.url+"/charges?item=../x", ""); code != http.StatusServiceUnavailable {
		t.Errorf("a charge for what there is not: %d", code)
	}
	for i, c := range []shop.Config{{}, {Role: "x"}, {Role: shop.Payment}, {Role: shop.Checkout, Inventory: "http://x"}, {Role: shop.Inventory, Connections: -1}, {Role: shop.Inventory, Load: -1}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c.Log = io.Discard
			if err := shop.Run(t.Context(), nil, c); err == nil {
				t.Errorf("Run(%+v) = nil", c)
			}
		})
	}
}
