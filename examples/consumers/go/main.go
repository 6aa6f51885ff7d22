// SPDX-License-Identifier: Apache-2.0

// Verdicts prints committed verdicts as JSON lines, in either form of the wire format, and continues after the last one that it has printed.
//
//	verdicts [-para N] [-count N] [-topic T] [-registry URL] SETTINGS GROUP SCHEMAS
//
// SETTINGS are `key=value` lines with librdkafka's names, SCHEMAS is a folder of .avsc files with every version that may occur.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const answerBytesMax = 16 << 20

var marker = []byte{0xc3, 0x01}

// schemas finds the schema that a value was written with.
type schemas struct {
	byFingerprint map[uint64]*goavro.Codec
	byID          map[uint32]*goavro.Codec
	registry      string
	client        http.Client
}

func readSchemas(folder, registry string) (*schemas, error) {
	found := &schemas{map[uint64]*goavro.Codec{}, map[uint32]*goavro.Codec{}, registry, http.Client{Timeout: 10 * time.Second}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.avsc"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		codec, err := goavro.NewCodec(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found.byFingerprint[codec.Rabin] = codec
	}
	return found, nil
}

// decode returns the record that a value holds.
func (s *schemas) decode(value []byte) (map[string]any, error) {
	codec, body, err := s.of(value)
	if err != nil {
		return nil, err
	}
	native, _, err := codec.NativeFromBinary(body)
	if err != nil {
		return nil, err
	}
	return native.(map[string]any), nil
}

func (s *schemas) of(value []byte) (*goavro.Codec, []byte, error) {
	switch {
	case len(value) >= 10 && bytes.HasPrefix(value, marker):
		fingerprint := binary.LittleEndian.Uint64(value[2:])
		if codec := s.byFingerprint[fingerprint]; codec != nil {
			return codec, value[10:], nil
		}
		return nil, nil, fmt.Errorf("no .avsc file has the fingerprint %x", value[2:10])
	case len(value) >= 5 && value[0] == 0:
		id := binary.BigEndian.Uint32(value[1:])
		if s.byID[id] == nil {
			codec, err := s.ask(id)
			if err != nil {
				return nil, nil, fmt.Errorf("schema id %d: %w", id, err)
			}
			s.byID[id] = codec
		}
		return s.byID[id], value[5:], nil
	}
	return nil, nil, fmt.Errorf("expected c301 or 00, found a value of %d bytes", len(value))
}

func (s *schemas) ask(id uint32) (*goavro.Codec, error) {
	if s.registry == "" {
		return nil, fmt.Errorf("-registry is missing")
	}
	answer, err := s.client.Get(fmt.Sprintf("%s/schemas/ids/%d", s.registry, id))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var found struct {
		Schema  string `json:"schema"`
		Message string `json:"message"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, answerBytesMax)).Decode(&found); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", answer.Status, found.Message)
	}
	return goavro.NewCodec(found.Schema)
}

type verdict struct {
	Lane    any    `json:"lane"`
	Block   any    `json:"block"`
	Kind    any    `json:"kind"`
	Index   any    `json:"index"`
	ParaID  any    `json:"para_id"`
	Outcome any    `json:"outcome"`
	Error   any    `json:"error"`
	ID      string `json:"id"`
}

func shown(record map[string]any) verdict {
	line := verdict{
		record["lane"], record["block"], record["kind"], record["index"], record["para_id"], record["outcome"], nil,
		fmt.Sprintf("0x%x", record["id"]),
	}
	if union, ok := record["error"].(map[string]any); ok { // a branch by the name of its type
		line.Error = union["validator.RuleError"].(map[string]any)["kind"]
	}
	return line
}

// options returns those of the client: address and login of the settings, and how to read.
func options(settings map[string]string, group, topic string) ([]kgo.Opt, error) {
	found := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(settings["bootstrap.servers"], ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		// Without it, verdicts of batches that are never committed are read, too, and again when they are written again.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
	user, password := settings["sasl.username"], settings["sasl.password"]
	switch mechanism := settings["sasl.mechanism"]; mechanism {
	case "":
	case "PLAIN":
		found = append(found, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		found = append(found, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		found = append(found, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("sasl.mechanism: expected PLAIN or SCRAM, found %q", mechanism)
	}
	if protocol := settings["security.protocol"]; strings.HasSuffix(strings.ToUpper(protocol), "SSL") {
		found = append(found, kgo.DialTLS())
	}
	return found, nil
}

func readSettings(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		key, value, _ := strings.Cut(line, "=")
		found[key] = value
	}
	return found, nil
}

// check returns an error for a topic that does not exist: a client waits for such a topic without a word.
func check(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, found := range answer.Topics {
		if found.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return fmt.Errorf("topic %s does not exist", topic)
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	para := flag.Int64("para", -1, "only verdicts of this para")
	count := flag.Int64("count", -1, "end after so many verdicts")
	topic := flag.String("topic", "validator.verdicts", "the topic's full name")
	registry := flag.String("registry", "", "the schema registry's address")
	flag.Parse()
	if flag.NArg() != 3 {
		log.Fatal("expected SETTINGS GROUP SCHEMAS")
	}
	if err := run(flag.Arg(0), flag.Arg(1), flag.Arg(2), *topic, *registry, *para, *count); err != nil {
		log.Fatal(err)
	}
}

func run(path, group, folder, topic, registry string, para, left int64) error {
	settings, err := readSettings(path)
	if err != nil {
		return err
	}
	known, err := readSchemas(folder, registry)
	if err != nil {
		return err
	}
	opts, err := options(settings, group, topic)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	lines := json.NewEncoder(os.Stdout)
	ctx := context.Background()
	if err := check(ctx, client, topic); err != nil {
		return err
	}
	for left != 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		var taken []*kgo.Record // of several partitions; the commit finds the last of each
		var failed error
		for records := fetches.RecordIter(); !records.Done() && left != 0; {
			record := records.Next()
			found, err := known.decode(record.Value)
			if err != nil {
				failed = fmt.Errorf("%s[%d]@%d: %w", record.Topic, record.Partition, record.Offset, err)
				break
			}
			if para < 0 || found["para_id"] == para {
				if failed = lines.Encode(shown(found)); failed != nil {
					break
				}
				left--
			}
			taken = append(taken, record)
		}
		// After the output: a program that ends before this prints these verdicts again, and loses none.
		if err := client.CommitRecords(ctx, taken...); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}
