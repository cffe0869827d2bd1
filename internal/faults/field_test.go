package faults

import "testing"

// reports are faults that users of other daemons report of their chat networks: messages
// that were lost, doubled or out of order, and what each network gets wrong in its own way.
var reports = []promise{
	{1, "one update that comes again is answered twice", []string{
		"whatsapp.TestOneMessageIsTakenOnceHoweverOftenItComes", "agent.TestTheSameKeyIsOneMessage", "daemon.TestARemoteAdapterCarriesAConversation",
	}},
	{2, "a message that comes again while its turn runs starts another", []string{"agent.TestTheSameKeyIsOneMessage"}},
	{3, "an answer is sent by a tool and then as the reply", []string{
		"agent.TestAnAnswerThatWasSentAlreadyIsOneMessage", "outbox.TestOneResultIsOneRowWhateverPathMadeIt",
	}},
	{4, "after a limit of a model every reply is sent twice", []string{"outbox.TestOneResultIsOneRowWhateverPathMadeIt"}},
	{5, "reasoning is sent", []string{"model/anthropic.TestSignedReasoningIsGivenBack"}},
	{6, "messages of one turn arrive out of order", []string{"outbox.TestNothingIsLostDoubledOrOutOfOrderWhateverHappens"}},
	{7, "a message overtakes one that waits to be tried again", []string{"outbox.TestARetryingHeadIsNeverOvertaken"}},
	{8, "messages of one chat are handled out of order", []string{"agent.TestAnswersComeInTheOrderOfTheirMessages"}},
	{9, "a redelivery that is the only copy is dropped", []string{"slack.TestWhatComesAgainIsTakenIn"}},
	{10, "a redelivery after five minutes is a second message", []string{"slack.TestTheLastCopyOfAKeptMessageIsNoSecondOne"}},
	{12, "a mention that comes as two events is answered twice", []string{"slack.TestAMentionIsOneMessage"}},
	{13, "the model is asked before the acknowledgement", []string{"slack.TestAMessageIsAcknowledgedWhenItIsKept"}},
	{15, "the work of another agent has ended and nobody is told", []string{"delegate.TestWhatEndsInTheBackgroundWakesItsConversationOnce"}},
	{17, "an agent believes that a failed message arrived", []string{
		"agent.TestTheNextTurnKnowsWhatDidNotArrive", "outbox.TestFailureIsToldAndTheNextGoesOut",
	}},
	{18, "a message to a misspelt name lands in an inbox nobody reads", []string{"agent.TestAMessageOfItsOwnGoesToWhomItNames"}},
	{22, "what is written while the link is down is lost", []string{
		"discord.TestWhatWasWrittenMeanwhileIsReadUpOn", "slack.TestWhatWasMissedIsReadFromTheHistory",
		"whatsapp.TestWhatWasSaidMeanwhileIsTakenOnce", "telegram.TestTheOffsetSurvivesARestart",
	}},
	{23, "a long reply is refused", []string{"markup.TestField23LongAnswersAreSplit", "telegram.TestWhatIsRenderedIsTaken"}},
	{24, "a reply is cut in the middle of its formatting", []string{"markup.TestField24FormattingIsNotCut"}},
	{25, "a reply whose formatting is refused is lost", []string{"telegram.TestFormattingThatCannotBeReadIsLeftOut"}},
	{26, "the text of an error breaks the formatting", []string{"markup.TestField26ForeignTextArrivesVerbatim"}},
	{28, "what a network asks to wait is not waited for", []string{"telegram.TestAFloodSaysHowLongToWait", "slack.TestRetryAfterIsWhatSlackSays"}},
	{29, "the final answer is lost behind its edits", []string{
		"channel.TestAnAnswerIsShownAsItIsWritten", "channel.TestAnAnswerWhosePreviewIsGoneIsAMessageOfItsOwn",
	}},
	{30, "an answer of a network that makes no sense ends the daemon", []string{
		"telegram.TestEveryCallCanGoWrongInEveryWay", "slack.TestNothingOfSlackEndsIt", "discord.TestARunOutlivesEveryFault",
		"channel.TestAPanicOfAnAdapterIsTrouble",
	}},
	{31, "a mention by another of ombud's ids is not seen", []string{"whatsapp.TestOmbudIsKnownByEachOfItsIDs", "whatsapp.TestOneIDHasManySpellings"}},
	{33, "a reply to ombud is not seen as one", []string{"discord.TestWhetherOmbudIsAddressed", "telegram.TestWhoIsAddressed"}},
	{34, "in a chat with oneself no mention counts", []string{"whatsapp.TestWhoIsAddressed"}},
	{35, "most disconnects end a channel for good", []string{"discord.TestEveryCloseCodeReconnectsOrStops", "whatsapp.TestOnlyALogOutEndsIt"}},
	{37, "tables and headings are broken, and edits are not formatted", []string{
		"markup.TestField37SlackShowsTablesAndHeadings", "slack.TestSendingAndEditingGiveTheSame",
	}},
	{39, "a read is refused for the form of its body", []string{"slack.TestHowItReads"}},
	{40, "an answer that is too long is silence", []string{"markup.TestField40WhatIsTooLongIsCutVisibly", "slack.TestALongAnswerArrivesWhole"}},
}

// foreign are faults that users of other daemons report of tools of others.
var foreign = []promise{
	{79, "one bad schema takes the whole server away", []string{"mcp/client.TestOneBadSchemaTakesNoOtherToolWithIt"}},
	{80, "a result of megabytes ends the conversation", []string{"mcp/client.TestAHundredMegabytesAreSurvived"}},
	{81, "servers are left behind at each connection", []string{
		"mcp/client.TestAServerThatNeverAnswers", "mcp/client.TestChildrenOfAServerGoWithIt", "daemon.TestAKilledDaemonLeavesNoServerAndNoSecondCall",
	}},
}

func TestEveryReportOfToolsIsHeldByATestThatExists(t *testing.T) {
	t.Parallel()
	held(t, "report", foreign, []int{79, 80, 81})
}

func TestEveryReportIsHeldByATestThatExists(t *testing.T) {
	t.Parallel()
	held(t, "report", reports, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 17, 18, 22, 23, 24, 25, 26, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40})
}
