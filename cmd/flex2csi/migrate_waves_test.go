package main

import (
	"testing"
	"time"
)

// TestWindowEnd: a time of the day is the nearest one.
func TestWindowEnd(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	at := func(text string) time.Time {
		day, err := time.ParseInLocation("02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return day.AddDate(2026, 10, 0)
	}
	for _, test := range []struct{ now, until, want string }{
		{"25 22:00", "05:00", "26 05:00"},
		{"26 04:59", "05:00", "26 05:00"},
		{"26 05:00", "05:00", "26 05:00"},
		{"26 05:10", "05:00", "26 05:00"}, // over
		{"26 16:59", "05:00", "26 05:00"}, // over
		{"26 17:00", "05:00", "27 05:00"},
		{"26 00:10", "23:00", "25 23:00"}, // over
		{"26 08:00", "18:30", "26 18:30"},
	} {
		if got, err := windowEnd(test.until, at(test.now)); err != nil || !got.Equal(at(test.want)) {
			t.Errorf("%s at %s is %s, want %s: %v", test.until, test.now, got, at(test.want), err)
		}
	}
	if got, err := windowEnd("2026-11-27T05:00:00+01:00", at("25 22:00")); err != nil || !got.Equal(at("27 05:00")) {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := windowEnd("", at("25 22:00")); err != nil || !got.IsZero() {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"5", "5pm", "24:00", "2h", "2026-11-27"} {
		if _, err := windowEnd(text, at("25 22:00")); err == nil {
			t.Errorf("--until %s", text)
		}
	}
}
