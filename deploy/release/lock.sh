exec 9>>"$root/.lock"
flock -w 5 9 || refuse 75 "another installation is at work in $root; wait for it to end"
