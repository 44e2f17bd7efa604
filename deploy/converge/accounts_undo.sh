! getent passwd {{ places.SERVICE_USER }} >/dev/null || userdel {{ places.SERVICE_USER }}
! getent group {{ places.SERVICE_USER }} >/dev/null || groupdel {{ places.SERVICE_USER }}
if [ -d {{ places.DEPLOY_STATE }}/account ]; then
    for file in {{ files }}; do
        rm -f /etc/$file-
        [ ! -e {{ places.DEPLOY_STATE }}/account/$file- ] || cp -p {{ places.DEPLOY_STATE }}/account/$file- /etc/
    done
fi
