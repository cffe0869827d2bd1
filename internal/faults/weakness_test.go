package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// promise is a fault that others had, and what holds that it is none here.
type promise struct {
	number int
	was    string
	tests  []string // package, by its last part or below internal or public, and name
}

// weaknesses are faults of another daemon that runs loops, recipes and agents by itself:
// work that it lost or did twice, and what made it slow. Each is held by the tests it
// names, wherever the mechanism is.
var weaknesses = []promise{
	{1, "events that arrive while a loop runs are dropped", []string{"trigger.TestEventsThatArriveWhileItRunsAreHandledAfterItInOrder"}},
	{2, "a retry has lost its trigger", []string{"trigger.TestARetryKeepsItsTrigger", "run.TestRetryKeepsStepsAndEndsAfterTheLastAttempt"}},
	{3, "between the offset and the run nothing is durable", []string{
		"trigger.TestAnEventStartsWhatListensWithItsPayload", "eventlog.TestKilledBetweenHandlerAndCommitTheEventsAreDeliveredAgain",
		"schedule.TestAKillBetweenFireAndCommitLosesNothingAndRepeatsNothing",
	}},
	{4, "recipes are not retried, and sleep for ever", []string{"recipe.TestAStepIsTriedAgain"}},
	{5, "an answer over the module's buffer makes the call again", []string{
		"signed.TestALongAnswerNeverRepeatsItsCall", "signed.TestAKillAtAnyPlaceOfARunRepeatsNoEffect",
	}},
	{6, "a failed turn is neither told nor tried again", []string{
		"laws.TestWeakness06AFailedTurnIsToldAndItsStepsAreRetried", "agent.TestAModelThatFailsIsToldAndAskedOnce",
	}},
	{7, "a run killed shortly before a restart stays running", []string{
		"laws.TestWeakness07ARunKilledShortlyBeforeARestartGoesOnAtOnce", "run.TestTheNextBootInAHomeNeedNotWaitForALease",
	}},
	{8, "resumed turns come newest first", []string{"laws.TestWeakness08ResumedTurnsKeepTheirOrder"}},
	{9, "a trigger between a failure and its retry takes the retry's steps", []string{"run.TestATriggerBetweenAFailureAndItsRetryTakesNothingFromIt"}},
	{12, "missed firings are not caught up", []string{"schedule.TestWhatPassesWhileTheDaemonIsDown", "schedule.TestAPastDueInstantFiresOrAdvances"}},
	{14, "a signature leaves out tools, provided tools and the description", []string{"signed.TestWeakness14WhatV1DoesNotSignIsConfirmedLineByLine"}},
	{17, "a name is checked and then resolved again, and redirects are not checked", []string{
		"guard.TestANameThatChangesItsAnswerGainsNothing", "guard.TestEveryRedirectHopIsChecked", "tools/web.TestARedirectIsFollowedOnlyWherePolicyAllows",
		"guard.TestAServerThatNeverAnswersTimesOut",
	}},
	{18, "a module's randomness is the same in each run, and memory_mb above 4096 ends the daemon", []string{
		"wasmloop.TestEachRunIsFreshAndRandomnessIsReal", "wasmloop.TestNoRunFindsWhatAnotherLeft",
		"wasmloop.TestAModuleThatDoesNotFitIsRefusedBeforeItRuns", "wasmloop.TestAModuleThatAsksForMoreThanItMayHaveIsRefused",
	}},
	{19, "credentials are kept in plain text, and an agent that only observes can send", []string{
		"daemon.TestNoSecretIsAnywhereOnDiskOrShown", "loops.TestAnObservingAgentCanReadAndRememberAndNothingElse",
	}},
	{22, "a disabled loop is still started by events", []string{"signed.TestWeakness22DisableStopsEveryTrigger"}},
	{23, "nothing bounds what a module logs and calls", []string{
		"signed.TestARunIsBounded", "wasmloop.TestAHugeLogIsCutAndTheRestDropped", "wasmloop.TestAGuestLeavesNothingRunning",
	}},
	{25, "each event costs a commit for each subscriber", []string{
		"eventlog.TestNineSubscriptionsCostFarFewerThanNineCommitsAnEvent", "eventlog.TestBatchIsOneCommitAndIdleIsNone",
	}},
	{26, "every loop is compiled at each start, and an install needs one", []string{"daemon.TestWeakness26InstallsAreHotAndAStartCompilesNothing"}},
	{27, "a poisoned event blocks its subscriber", []string{
		"eventlog.TestFailingEventBlocksItsStreamOnlyAndCatchesUpInOrder", "trigger.TestAPoisonedEventDelaysOnlyItsStream",
	}},
	{28, "the store has no version", []string{"db.TestOlderSchemaIsBackedUpAndMigratedAndNewerRefused"}},
	{29, "the 65th conversation is refused", []string{"laws.TestWeakness29AThousandConversationsAtOnce"}},
	{30, "signed loops have no steps, timers, sleeps, fences, progress, error texts or secrets", []string{
		"signed.TestStepsOfTheModulesOwn", "signed.TestAParkedRunRepeatsNothing", "signed.TestEveryHostFunctionPassesTheOneDoor",
		"signed.TestACallIsRefusedBeforeItIsMade",
	}},
	{31, "dead letters cannot be listed or replayed", []string{
		"deadletter.TestThreeSourcesAreOneList", "deadletter.TestAKillAtTheCommitOfADecisionLosesNothingAndRepeatsNothing",
	}},
}

func TestEveryWeaknessIsHeldByATestThatExists(t *testing.T) {
	t.Parallel()
	held(t, "weakness", weaknesses, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 17, 18, 19, 22, 23, 25, 26, 27, 28, 29, 30, 31})
}

// held fails where a promise is missing, or has no test: a promise whose test is gone is none.
func held(t *testing.T, what string, list []promise, numbers []int) {
	t.Helper()
	named := regexp.MustCompile(`^([\w/]+)\.(Test\w+)$`)
	seen := map[int]bool{}
	for _, w := range list {
		if seen[w.number] || w.was == "" || len(w.tests) == 0 {
			t.Errorf("%s %d is listed twice, or by nothing", what, w.number)
		}
		seen[w.number] = true
		for _, name := range w.tests {
			m := named.FindStringSubmatch(name)
			if m == nil {
				t.Errorf("%s %d: %q is no package and test", what, w.number, name)
				continue
			}
			dir := filepath.FromSlash(m[1])
			if !slices.ContainsFunc([]string{"..", "../..", "../channel"}, func(above string) bool { return declares(t, filepath.Join(above, dir), m[2]) }) {
				t.Errorf("%s %d (%s): there is no %s", what, w.number, w.was, name)
			}
		}
	}
	for _, n := range numbers {
		if !seen[n] {
			t.Errorf("%s %d is held by no test", what, n)
		}
	}
}

// declares reports whether a package has a test of that name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	decl := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if decl.Match(raw) {
			return true
		}
	}
	return false
}
