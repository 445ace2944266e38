package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// choosing sends where the message says: to its queue, by its sharding key, or in turn.
type choosing struct{ manual, byKey, inTurn producer.QueueSelector }

func newChoosing() choosing {
	return choosing{
		producer.NewManualQueueSelector(),
		producer.NewHashQueueSelector(),
		producer.NewRoundRobinQueueSelector(),
	}
}

func (s choosing) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	switch {
	case message.Queue != nil:
		return s.manual.Select(message, queues, last)
	case message.GetShardingKey() != "":
		return s.byKey.Select(message, queues, last)
	}
	return s.inTurn.Select(message, queues, last)
}

// producing holds producers by name.
type producing struct {
	sync.Mutex
	producers map[string]rocketmq.Producer
	floods    map[string]*flood
	watched   map[string]chan time.Time
}

func newProducing() *producing {
	return &producing{
		producers: map[string]rocketmq.Producer{},
		floods:    map[string]*flood{},
		watched:   map[string]chan time.Time{},
	}
}

func options(c command) []producer.Option {
	chosen := []producer.Option{
		producer.WithGroupName(c.text("group")),
		producer.WithInstanceName(c.text("instance")),
		producer.WithNsResolver(c.resolver()),
		producer.WithQueueSelector(newChoosing()),
		producer.WithVIPChannel(c.flag("vip")),
		producer.WithSendMsgTimeout(time.Duration(c.number("timeout_ms", 60_000)) * time.Millisecond),
	}
	if c.has("retries") {
		chosen = append(chosen, producer.WithRetry(int(c.number("retries", 0))))
	}
	if c.has("compress_over") {
		over := int(c.number("compress_over", 0))
		chosen = append(chosen, producer.WithCompressMsgBodyOverHowmuch(over))
	}
	return chosen
}

func (p *producing) perform(op string, c command) (any, error) {
	if op == "producer.start" {
		return p.start(c)
	}
	p.Lock()
	chosen, known := p.producers[c.text("producer")]
	p.Unlock()
	if !known {
		return nil, fmt.Errorf("no producer %s", c.text("producer"))
	}
	switch op {
	case "producer.send", "producer.batch", "producer.ordered":
		return p.send(chosen, c)
	case "producer.async":
		return p.sendAsync(chosen, c)
	case "producer.oneway":
		messages, err := c.messages()
		if err != nil {
			return nil, err
		}
		return true, chosen.SendOneWay(context.Background(), messages...)
	case "producer.request":
		return p.request(chosen, c)
	case "producer.stream":
		return p.stream(chosen, c)
	case "producer.latency":
		return p.latency(chosen, c)
	case "producer.flood":
		begun := startFlood(chosen, c)
		p.Lock()
		p.floods[c.text("producer")] = begun
		p.Unlock()
		return true, nil
	case "producer.flood_end":
		p.Lock()
		begun := p.floods[c.text("producer")]
		p.Unlock()
		return begun.end(), nil
	case "producer.close":
		p.Lock()
		delete(p.producers, c.text("producer"))
		p.Unlock()
		return true, chosen.Shutdown()
	}
	return nil, fmt.Errorf("no such command: %s", op)
}

func (p *producing) start(c command) (any, error) {
	started, err := rocketmq.NewProducer(options(c)...)
	if err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	p.Lock()
	defer p.Unlock()
	p.producers[c.text("producer")] = started
	return true, nil
}

func (p *producing) send(chosen rocketmq.Producer, c command) (any, error) {
	messages, err := c.messages()
	if err != nil {
		return nil, err
	}
	result, err := chosen.SendSync(context.Background(), messages...)
	if err != nil {
		return nil, err
	}
	return sent(result), nil
}

func (p *producing) sendAsync(chosen rocketmq.Producer, c command) (any, error) {
	messages, err := c.messages()
	if err != nil {
		return nil, err
	}
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	answered := make(chan outcome, 2)
	callback := func(_ context.Context, result *primitive.SendResult, err error) {
		answered <- outcome{result, err}
	}
	if err := chosen.SendAsync(context.Background(), callback, messages...); err != nil {
		return nil, err
	}
	got := <-answered
	if got.err != nil {
		return nil, got.err
	}
	return sent(got.result), nil
}

func (p *producing) request(chosen rocketmq.Producer, c command) (any, error) {
	messages, err := c.messages()
	if err != nil {
		return nil, err
	}
	limit := time.Duration(c.number("limit_ms", 10_000)) * time.Millisecond
	reply, err := chosen.Request(context.Background(), limit, messages[0])
	if err != nil {
		return nil, err
	}
	return row{"text": string(reply.Body), "properties": reply.GetProperties()}, nil
}

// stream sends each queue's part in order; the offsets of each queue in order.
func (p *producing) stream(chosen rocketmq.Producer, c command) (any, error) {
	queues := int(c.number("queues", 1))
	perQueue := int(c.number("count", 0)) / queues
	offsets := make(map[string][]int64, queues)
	failed := make(chan error, queues)
	var guard sync.Mutex
	for number := 0; number < queues; number++ {
		go func(number int) {
			var mine []int64
			for count := 0; count < perQueue; count++ {
				text := fmt.Sprintf("q%d-%d", number, count)
				message := primitive.NewMessage(c.text("topic"), []byte(text))
				message.Queue = c.queue()
				message.Queue.QueueId = number
				result, err := chosen.SendSync(context.Background(), message)
				if err != nil {
					failed <- err
					return
				}
				mine = append(mine, result.QueueOffset)
			}
			guard.Lock()
			offsets[fmt.Sprint(number)] = mine
			guard.Unlock()
			failed <- nil
		}(number)
	}
	for number := 0; number < queues; number++ {
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// watch returns a channel that gets the moment when a listener is given this text.
func (p *producing) watch(text string) chan time.Time {
	p.Lock()
	defer p.Unlock()
	seen := make(chan time.Time, 1)
	p.watched[text] = seen
	return seen
}

// saw is called by listeners for each text that they are given.
func (p *producing) saw(text string, at time.Time) {
	p.Lock()
	defer p.Unlock()
	if seen, waiting := p.watched[text]; waiting {
		delete(p.watched, text)
		seen <- at
	}
}

// latency is in microseconds from before the send until the waiting consumer's listener is called.
func (p *producing) latency(chosen rocketmq.Producer, c command) (any, error) {
	var spent []int
	for round := 0; round < int(c.number("rounds", 1)); round++ {
		// The consumer's next pull must be waiting at the broker before the message comes.
		time.Sleep(time.Duration(c.number("gap_ms", 20)) * time.Millisecond)
		text := fmt.Sprintf("%s%d", c.text("mark"), round)
		seen := p.watch(text)
		started := time.Now()
		message := primitive.NewMessage(c.text("topic"), []byte(text))
		if _, err := chosen.SendSync(context.Background(), message); err != nil {
			return nil, err
		}
		select {
		case at := <-seen:
			spent = append(spent, int(at.Sub(started).Microseconds()))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("%s did not come", text)
		}
	}
	sort.Ints(spent)
	return spent, nil
}

// flood sends numbered messages until it is told to end; a failed number is not sent again.
type flood struct {
	ending, ended        chan struct{}
	acknowledged, failed []int
}

func startFlood(chosen rocketmq.Producer, c command) *flood {
	begun := &flood{
		ending: make(chan struct{}), ended: make(chan struct{}),
		acknowledged: []int{}, failed: []int{},
	}
	gap := time.Duration(c.number("gap_ms", 1)) * time.Millisecond
	go begun.run(chosen, c.text("topic"), gap)
	return begun
}

func (f *flood) run(chosen rocketmq.Producer, topic string, gap time.Duration) {
	defer close(f.ended)
	for number := 0; ; number++ {
		pause := gap
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("n%d", number)))
		result, err := chosen.SendSync(context.Background(), message)
		if err == nil && result.Status == primitive.SendOK {
			f.acknowledged = append(f.acknowledged, number)
		} else {
			f.failed = append(f.failed, number)
			pause = 100 * time.Millisecond
		}
		select {
		case <-f.ending:
			return
		case <-time.After(pause):
		}
	}
}

func (f *flood) end() row {
	close(f.ending)
	<-f.ended
	return row{"acknowledged": f.acknowledged, "failed": f.failed}
}
