// Package whatsapptest has the two other sides of WhatsApp for tests: a program wacli and
// a Cloud API. Both keep the rules of the real ones, and break them as those do.
//
// The program is the test's own binary under another name. A package whose tests use it
// calls [Main] first of all:
//
//	func TestMain(m *testing.M) {
//		whatsapptest.Main()
//		goleak.VerifyTestMain(m)
//	}
package whatsapptest
