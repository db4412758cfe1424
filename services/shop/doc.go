// Package shop is a sample to diagnose: a shop of three small processes that call each other over HTTP, log lines of JSON and export metrics, with a fault
// that can be switched on.
//
//	load ─▶ checkout ─▶ inventory   GET  /items/{item}
//	                └─▶ payment ─▶ inventory
//	        POST /orders    POST /charges
//
// The fault is a real one: payment does not close the answers of inventory any more, so each of its connections is lost for good, until none is left and every
// charge waits for one in vain. A restart mends it, until it is switched on again.
package shop
