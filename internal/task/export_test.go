package task

// Abandon ends the workers as a crash would: nothing is written, given back or acknowledged any more.
func (p *Pool) Abandon() {
	p.taking()
	<-p.taker
	p.unpark()
	p.cut(errLost)
	p.work.Wait()
}
