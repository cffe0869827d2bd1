// Command weather-watch is a loop that tells in the evening what the weather of tomorrow
// may do harm to: plants by frost, what stands outside by wind, a way by rain.
//
// Settings: latitude and longitude; frost in °C (0), gusts in km/h (60) and rain in mm (20)
// from which it tells.
package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
)

func init() { loop.Main(run) }

func main() {}

type settings struct{ latitude, longitude, frost, gusts, rain float64 }

func run(k *loop.Kit) error {
	set, err := read(k)
	if err != nil {
		return err
	}
	day, err := tomorrow(k, set)
	if err != nil {
		return err
	}
	warning := day.warning(set)
	told, _, err := k.Kept("told", day.Date)
	if err != nil || warning == "" || told == warning {
		return err
	}
	if err := k.Notify("weather of "+day.Date, warning); err != nil {
		return err
	}
	return k.Keep("told", day.Date, warning, 72*time.Hour)
}

func read(k *loop.Kit) (set settings, err error) {
	for _, s := range []struct {
		key   string
		usual string
		into  *float64
	}{
		{"latitude", "", &set.latitude},
		{"longitude", "", &set.longitude},
		{"frost", "0", &set.frost},
		{"gusts", "60", &set.gusts},
		{"rain", "20", &set.rain},
	} {
		text, err := k.Config(s.key)
		if err != nil {
			return set, err
		}
		if text == "" {
			text = s.usual
		}
		if *s.into, err = strconv.ParseFloat(text, 64); err != nil {
			return set, fmt.Errorf("the setting %s is %q and has to be a number: ombud loop set weather-watch latitude=52.5 longitude=13.4", s.key, text)
		}
	}
	return set, nil
}

type day struct {
	Date             string
	Low, Gusts, Rain float64
}

// tomorrow is the forecast of the day behind this one, where the place is.
func tomorrow(k *loop.Kit, set settings) (day, error) {
	resp, err := k.HTTP(loop.Request{URL: fmt.Sprintf("https://api.open-meteo.com/v1/forecast?latitude=%g&longitude=%g"+
		"&daily=temperature_2m_min,wind_gusts_10m_max,precipitation_sum&timezone=auto&forecast_days=2", set.latitude, set.longitude)})
	if err != nil {
		return day{}, err
	}
	if resp.Status != 200 {
		return day{}, fmt.Errorf("the forecast answers %d: %.200s", resp.Status, resp.Body)
	}
	var got struct {
		Daily struct {
			Time  []string  `json:"time"`
			Low   []float64 `json:"temperature_2m_min"`
			Gusts []float64 `json:"wind_gusts_10m_max"`
			Rain  []float64 `json:"precipitation_sum"`
		} `json:"daily"`
	}
	if err := json.Unmarshal([]byte(resp.Body), &got); err != nil {
		return day{}, fmt.Errorf("the forecast: %w", err)
	}
	d := got.Daily
	if len(d.Time) < 2 || len(d.Low) < 2 || len(d.Gusts) < 2 || len(d.Rain) < 2 {
		return day{}, fmt.Errorf("the forecast does not have tomorrow in it")
	}
	return day{d.Time[1], d.Low[1], d.Gusts[1], d.Rain[1]}, nil
}

// warning says what is beyond what was set, "" if nothing is.
func (d day) warning(set settings) string {
	var lines []string
	if d.Low <= set.frost {
		lines = append(lines, fmt.Sprintf("down to %g °C: bring in what must not freeze", d.Low))
	}
	if d.Gusts >= set.gusts {
		lines = append(lines, fmt.Sprintf("gusts of %g km/h: tie down what can fly", d.Gusts))
	}
	if d.Rain >= set.rain {
		lines = append(lines, fmt.Sprintf("%g mm of rain", d.Rain))
	}
	return strings.Join(lines, "\n")
}
