package main

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// command is one form-encoded line: fields by name, a field may occur several times.
type command struct{ fields url.Values }

func parseCommand(line string) (command, error) {
	fields, err := url.ParseQuery(strings.TrimSpace(line))
	return command{fields}, err
}

func (c command) has(name string) bool { return c.fields.Has(name) }

func (c command) text(name string) string { return c.fields.Get(name) }

func (c command) textOr(name, otherwise string) string {
	if c.has(name) {
		return c.text(name)
	}
	return otherwise
}

func (c command) number(name string, otherwise int64) int64 {
	value, err := strconv.ParseInt(c.text(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return value
}

func (c command) flag(name string) bool { return c.text(name) == "true" }

func (c command) bodies() ([][]byte, error) {
	var bodies [][]byte
	for _, text := range c.fields["body"] {
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	if len(bodies) == 0 {
		return nil, fmt.Errorf("the command has no body")
	}
	return bodies, nil
}

func (c command) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{c.text("ns")})
}

func (c command) queue() *primitive.MessageQueue {
	return &primitive.MessageQueue{
		Topic:      c.text("topic"),
		BrokerName: c.text("broker"),
		QueueId:    int(c.number("queue", 0)),
	}
}

// message is one message of the command with this body.
func (c command) message(body []byte) *primitive.Message {
	message := primitive.NewMessage(c.text("topic"), body)
	if c.has("tags") {
		message.WithTag(c.text("tags"))
	}
	if c.has("keys") {
		message.WithKeys(strings.Split(c.text("keys"), " "))
	}
	if c.has("shard") {
		message.WithShardingKey(c.text("shard"))
	}
	if c.has("delay_level") {
		message.WithDelayTimeLevel(int(c.number("delay_level", 0)))
	}
	if c.has("queue") {
		message.Queue = c.queue()
	}
	message.Flag = int32(c.number("flag", 0))
	for _, property := range c.fields["property"] {
		key, value, _ := strings.Cut(property, "=")
		message.WithProperty(key, value)
	}
	return message
}

func (c command) messages() ([]*primitive.Message, error) {
	bodies, err := c.bodies()
	if err != nil {
		return nil, err
	}
	var messages []*primitive.Message
	for _, body := range bodies {
		messages = append(messages, c.message(body))
	}
	return messages, nil
}
