package faultproxy_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A wire is a client and a server that speak byte by byte, with a proxy between them,
// for what depends on the order in which bytes arrive.
type wire struct {
	t              *testing.T
	client, server net.Conn
	fromProxy      *bufio.Reader // what the client gets
	toServer       *bufio.Reader // what the server gets
}

// connect opens a wire; the proxy is made by open.
func connect(t *testing.T, open func(t testing.TB, addr string) *faultproxy.Proxy) (*faultproxy.Proxy, *wire) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := open(t, l.Addr().String())
	client, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{client, server} {
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return p, &wire{t, client, server, bufio.NewReader(client), bufio.NewReader(server)}
}

// send writes what the client or the server says.
func (w *wire) send(to net.Conn, text string) {
	w.t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		w.t.Fatal(err)
	}
}

// want reads exactly the text.
func (w *wire) want(from *bufio.Reader, text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(from, got); err != nil || string(got) != text {
		w.t.Fatalf("got %q, %v; want %q", got[:n], err, text)
	}
}

// wantEnd reads the end of the connection.
func (w *wire) wantEnd(from *bufio.Reader) {
	w.t.Helper()
	if b, err := from.ReadByte(); err == nil || !isCut(err) {
		w.t.Fatalf("got %q, %v; want the end", b, err)
	}
}

// bulk is an array of strings in Redis's protocol, for commands and for answers.
func bulk(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// A message that comes before the reply is no reply.
func TestHoldReply_MessagesPassWhileAReplyIsHeld(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"RESP2": "*", "RESP3": ">"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, w := connect(t, faultproxy.Redis)
			confirmation := kind + "3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
			message := kind + "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"
			rule := p.On(faultproxy.Named("PING"), faultproxy.LoseReply())
			w.send(w.client, bulk("SUBSCRIBE", "a"))
			w.want(w.toServer, bulk("SUBSCRIBE", "a"))
			w.send(w.server, confirmation)
			w.want(w.fromProxy, confirmation)
			w.send(w.client, bulk("PING"))
			w.want(w.toServer, bulk("PING"))
			w.send(w.server, message)
			w.want(w.fromProxy, message)
			w.send(w.server, bulk("pong", ""))
			rule.Wait(t)
			w.wantEnd(w.fromProxy)
		})
	}
}

// Each channel is confirmed; the next command's answer comes after all of them.
func TestLoseReply_CountsTheConfirmations(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.Redis)
	p.On(faultproxy.Named("UNSUBSCRIBE"), faultproxy.LoseReply())
	commands := bulk("SUBSCRIBE", "a", "b") + bulk("UNSUBSCRIBE", "a")
	w.send(w.client, commands)
	w.want(w.toServer, commands)
	confirmations := bulk("subscribe", "a", "1") + bulk("subscribe", "b", "2")
	w.send(w.server, confirmations)
	w.want(w.fromProxy, confirmations)
	w.send(w.server, bulk("unsubscribe", "a", "1"))
	w.wantEnd(w.fromProxy)
}

// The reply is lost on its way to the client; what the client sends before it notices
// arrives, and its end too.
func TestLoseReply_TheOtherDirectionStaysOpen(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.Redis)
	p.On(faultproxy.Named("GET"), faultproxy.LoseReply())
	w.send(w.client, bulk("GET", "a"))
	w.want(w.toServer, bulk("GET", "a"))
	w.send(w.server, "+x\r\n")
	w.wantEnd(w.fromProxy)
	w.send(w.client, bulk("GET", "b"))
	w.want(w.toServer, bulk("GET", "b"))
	if err := w.client.Close(); err != nil {
		t.Fatal(err)
	}
	w.wantEnd(w.toServer)
}

// A command that never arrives ends the connection; the replies to what was sent
// before come first.
func TestLoseRequest_EarlierRepliesStillCome(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.Redis)
	rule := p.On(faultproxy.Named("GET").Containing("b"), faultproxy.LoseRequest())
	w.send(w.client, bulk("GET", "a")+bulk("GET", "b")+bulk("GET", "c"))
	w.want(w.toServer, bulk("GET", "a"))
	w.wantEnd(w.toServer)
	rule.Wait(t)
	w.send(w.server, "+a\r\n")
	w.want(w.fromProxy, "+a\r\n")
	if err := w.server.Close(); err != nil {
		t.Fatal(err)
	}
	w.wantEnd(w.fromProxy)
}

// The second copy is sent when the first is answered, and its answer is the client's.
func TestRepeat_OneAfterTheOther(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.Redis)
	p.On(faultproxy.Named("GET"), faultproxy.Repeat())
	w.send(w.client, bulk("GET", "a")+bulk("PING"))
	w.want(w.toServer, bulk("GET", "a"))
	w.send(w.server, "+1\r\n")
	w.want(w.toServer, bulk("GET", "a"))
	w.want(w.toServer, bulk("PING"))
	w.send(w.server, "+2\r\n+PONG\r\n")
	w.want(w.fromProxy, "+2\r\n+PONG\r\n")
}

// A connection that has lost bytes is of no use after healing.
func TestHeal_ClosesConnectionsThatMissBytes(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.TCP)
	w.send(w.client, "before")
	w.want(w.toServer, "before")
	p.HalfOpen()
	w.send(w.server, "lost")
	testserver.Eventually(t, 10*time.Second, func() bool { return p.Lost() > 0 }, "the bytes are swallowed")
	p.Heal(t)
	w.wantEnd(w.fromProxy)
}

// A stall loses nothing: both directions go on where they stopped.
func TestStall_KeepsConnections(t *testing.T) {
	t.Parallel()
	p, w := connect(t, faultproxy.TCP)
	p.Stall()
	w.send(w.client, "question")
	w.send(w.server, "answer")
	p.Heal(t)
	w.want(w.toServer, "question")
	w.want(w.fromProxy, "answer")
}

// Faults of the reply pass over commands that have none, such as closing a statement.
func TestMariaDB_CommandsWithoutReplyMeetNoFaultOfTheReply(t *testing.T) {
	t.Parallel()
	d := testserver.MariaDB(t)
	p := faultproxy.MariaDB(t, d.Addr)
	db, err := sql.Open("mysql", d.Via(p.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	stmt, err := db.PrepareContext(t.Context(), "SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	repeat := p.On(faultproxy.Named("CLOSE"), faultproxy.Repeat())
	lose := p.On(faultproxy.Any(), faultproxy.LoseReply())
	if err := stmt.Close(); err != nil { //nolint:sqlclosecheck // the test is about this call
		t.Fatal(err)
	}
	if err := db.QueryRowContext(t.Context(), "SELECT 2").Scan(new(int)); err == nil {
		t.Error("the reply to SELECT is not lost")
	}
	lose.Wait(t)
	if got := p.Count(faultproxy.Named("CLOSE")); got != 1 {
		t.Errorf("%d CLOSE seen, want 1", got)
	}
	if got := repeat.Fired(); got != 0 {
		t.Errorf("the rule for CLOSE fired %d times, want never", got)
	}
}
