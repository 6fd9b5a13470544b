"""Santa's mailbox: jobs come in batches, and the mailbox tunes how many to process at once.

Every 5 seconds 0 to 10 letters arrive, and each takes about 5 seconds of one core. A mailbox that
takes 4 at a time falls behind where there are more cores; one that adjusts itself does not.

Source: Mathias Brandewinder, "Santa's Mailbox", 4 December 2019,
https://brandewinder.com/2019/12/04/santas-mailbox/
"""
