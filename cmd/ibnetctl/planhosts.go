package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/hosts"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/units"
)

// planHosts prints what the units give each host of a list, that of standard input for -.
func (a *app) planHosts(file string, set *units.Set) error {
	var text []byte
	var err error
	if file == "-" {
		file = "standard input"
		if text, err = io.ReadAll(io.LimitReader(a.in, hosts.MaxFile+1)); err == nil && len(text) > hosts.MaxFile {
			err = fmt.Errorf("standard input is larger than %d bytes", hosts.MaxFile)
		}
	} else {
		text, err = smallfile.ReadRegular(file, hosts.MaxFile)
	}
	if err != nil {
		return opening(err)
	}
	list, problems := hosts.Parse(file, string(text))
	rows, collisions := hosts.Plan(set, list)
	missing := 0
	for _, r := range rows {
		if len(r.Missing) > 0 {
			missing++
		}
	}
	failed := len(problems) > 0 || len(collisions) > 0 || missing > 0
	if a.json {
		form := answer.PlanHosts{Schema: answer.Schema, OK: !failed, Hosts: rows, Collisions: collisions, Problems: problems}
		if form.Hosts == nil {
			form.Hosts = []hosts.Row{}
		}
		if err := a.emit(form); err != nil {
			return err
		}
	} else {
		a.printHosts(rows, collisions, problems)
		fmt.Fprintf(a.err, "%d %s, %d with an address missing, %d %s\n", len(list), plural(len(list), "host", "hosts"), missing,
			len(collisions), plural(len(collisions), "address that is not unique", "addresses that are not unique"))
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (a *app) printHosts(rows []hosts.Row, collisions []hosts.Collision, problems []units.Problem) {
	a.printProblems(problems)
	var cells [][]cell
	for _, r := range rows {
		first, more := cmp.Or(strings.Join(r.Addresses, " "), "-"), []string(nil)
		if a.width > 0 && len(r.Addresses) > 1 { // a row of several may be wider than a terminal
			first, more = r.Addresses[0], r.Addresses[1:]
		}
		cells = append(cells, []cell{{text: r.Host}, {text: cmp.Or(r.Link, r.GUID, "-")}, {text: first}, {text: cmp.Or(r.Unit, "-")},
			{text: r.Why(), style: soso}})
		for _, a := range more {
			cells = append(cells, []cell{{}, {}, {text: a}, {}, {}})
		}
	}
	a.table("", []string{"HOST", "LINK", "ADDRESSES", "UNIT", "WHY"}, cells, "UNIT")
	for _, c := range collisions {
		a.say("", 2, a.paint(bad, fmt.Sprintf("%s is the address of %s", c.Address, strings.Join(c.Holders, ", "))))
	}
}
