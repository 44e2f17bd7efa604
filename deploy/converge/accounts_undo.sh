for account in {{ accounts }}; do
    ! getent passwd $account >/dev/null || userdel $account
    ! getent group $account >/dev/null || groupdel $account
done
if [ -d {{ places.DEPLOY_STATE }}/account ]; then
    for file in {{ files }}; do
        rm -f /etc/$file-
        [ ! -e {{ places.DEPLOY_STATE }}/account/$file- ] || cp -p {{ places.DEPLOY_STATE }}/account/$file- /etc/
    done
fi
